"""Typical calls, made before forking, so that every program finds the caches filled."""

from __future__ import annotations

import importlib


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
