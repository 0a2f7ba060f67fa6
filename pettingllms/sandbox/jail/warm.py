"""Typical calls, made before forking, so that every program finds the caches filled."""

from __future__ import annotations

import importlib
import logging


def science() -> None:
    """Fill the caches of sympy and numpy; both generators of random numbers get a fixed seed."""
    sympy = importlib.import_module("sympy")
    numpy = importlib.import_module("numpy")
    x, y = sympy.symbols("x y")
    sympy.solve(x**2 - 5 * x + 6, x)
    sympy.solve([x + y - 3, x - y - 1], [x, y])
    sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2)
    sympy.expand((x + 1) ** 3)
    sympy.factor(x**3 - 1)
    sympy.integrate(x**2, (x, 0, 1))
    sympy.diff(sympy.exp(x) * x, x)
    matrix = numpy.array([[2.0, 1.0], [1.0, 3.0]])
    for call in (
        lambda: sympy.N(sympy.sqrt(8) + sympy.Rational(3, 6), 20),
        lambda: sympy.factorint(360),
        lambda: sympy.isprime(97),
        lambda: sympy.binomial(10, 3),
        lambda: sympy.latex(x**2) + str(sympy.sympify("2*x + 1")),
        lambda: numpy.linalg.solve(matrix, numpy.ones(2)),
        lambda: numpy.linalg.eigvals(matrix @ matrix),
    ):
        call()
    numpy.random.seed(0)


_COMPARED = r"""
1/2|0.5
x+3|1+x
\sqrt{12}|2\sqrt{3}
[0,1]|0\le x\le 1
(-\infty,0)\cup(1,2]|x<0
\left(1,-2\right)|(1,2)
1,2,3|\{3,2,1\}
x=-\frac{3}{4}|-0.75
\begin{pmatrix}1&2\\3&4\end{pmatrix}|\begin{bmatrix}1&2\\3&5\end{bmatrix}
2\pi r^{2}|\frac{6\pi}{3}
x^2-y^2|(x-y)(x+y)
1+2i|2i+1
50\%|1.5\times 10^{3}
\log_{2}(8)|\sin(x)
\text{(C)}|C
y=2x+1|2x-y+1=0
"""
"""Pairs of typical kinds; each kind makes the parser build tables that the next text needs."""


def math_verify() -> None:
    """Fill the caches of math-verify, which takes longer than most comparisons."""
    library = importlib.import_module("math_verify")
    logging.disable(logging.CRITICAL)
    config = (library.LatexExtractionConfig(boxed_match_priority=0),)
    for line in _COMPARED.strip().splitlines():
        wanted, given = (
            library.parse(rf"\boxed{{{text}}}", config, "no_fallback", parsing_timeout=None)
            for text in line.split("|")
        )
        library.verify(wanted, given, timeout_seconds=None, allow_set_relation_comp=True)


WARM_UPS = {"science": science, "math_verify": math_verify}
"""Flavour -> what is called in its servers; other flavours need nothing."""
