"""Generated questions: equations and polynomials, sums and recurrences, lengths and angles."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from pettingllms_envs.math.families.family import (
    Calculation,
    Family,
    Params,
    combination,
    latex,
    nonzero,
    polynomial,
)


def _system(rng: random.Random, difficulty: int) -> Params:
    bound = 3 + 3 * difficulty
    while True:
        a, b, d, e = (nonzero(rng, bound) for _ in range(4))
        # Lines that are not parallel have exactly one point in common.
        if a * e != b * d:
            x, y = rng.randint(-3 * bound, 3 * bound), rng.randint(-3 * bound, 3 * bound)
            return (a, b, a * x + b * y, d, e, d * x + e * y)


def _system_answer(params: Params) -> str:
    a, b, c, d, e, f = params
    det = a * e - b * d
    return f"({latex(Fraction(c * e - b * f, det))},{latex(Fraction(a * f - c * d, det))})"


def _roots(rng: random.Random, difficulty: int) -> Params:
    bound = 8 + 6 * difficulty
    first = rng.randint(-bound, bound)
    # A double root would be one answer where two are asked for.
    second = rng.choice([r for r in range(-bound, bound + 1) if r != first])
    scale = rng.randint(1, difficulty)
    return (scale, *sorted((first, second)))


def _quadratic(params: Params) -> str:
    scale, r, s = params
    return polynomial((scale, -scale * (r + s), scale * r * s))


def _coefficients(rng: random.Random, difficulty: int) -> Params:
    return (nonzero(rng, 3 + difficulty), *(nonzero(rng, 9) for _ in range(difficulty + 2)))


def _remainder(params: Sequence[Any]) -> Any:
    x, value, *coefficients = params
    for coefficient in coefficients:
        value = value * x + coefficient
    return value


def _power_sum(params: Sequence[Any]) -> Any:
    total, product, power = params
    # Newton's identity: no root is ever calculated, so that complex ones do no harm.
    sums = [2, total]
    while len(sums) <= int(power):
        sums.append(total * sums[-1] - product * sums[-2])
    return sums[-1]


def _composed(rng: random.Random, difficulty: int) -> Params:
    bound = 2 + 2 * difficulty
    return (*(nonzero(rng, bound) for _ in range(5)), rng.randint(-bound, bound))


def _composed_answer(params: Sequence[Any]) -> Any:
    a, b, c, d, e, x = params
    inner = c * x * x + d * x + e
    return a * inner + b


ALGEBRA = (
    Family(
        name="two_equations",
        sample=_system,
        question=lambda p: (
            f"Solve the system ${combination((p[0], 'x'), (p[1], 'y'))} = {p[2]}$, "
            f"${combination((p[3], 'x'), (p[4], 'y'))} = {p[5]}$. Give the answer as $(x,y)$."
        ),
        answer=_system_answer,
        canonical=lambda p: min(p, p[3:] + p[:3]),
    ),
    Family(
        name="both_roots",
        sample=_roots,
        question=lambda p: (
            f"Find all real solutions of ${_quadratic(p)} = 0$. Separate them by commas."
        ),
        answer=lambda p: f"{p[1]},{p[2]}",
    ),
    Family(
        name="negative_values",
        sample=_roots,
        question=lambda p: (
            f"For which real $x$ is ${_quadratic(p)} \\le 0$? Give the answer as an interval."
        ),
        answer=lambda p: f"[{p[1]},{p[2]}]",
    ),
    Family(
        name="polynomial_remainder",
        sample=lambda rng, difficulty: (
            nonzero(rng, 2 + difficulty),
            *_coefficients(rng, difficulty),
        ),
        question=lambda p: (
            f"Find the remainder when ${polynomial(p[1:])}$ is divided by "
            f"${polynomial((1, -p[0]))}$."
        ),
        answer=Calculation(_remainder),
    ),
    Family(
        name="power_sum",
        sample=lambda rng, difficulty: (
            nonzero(rng, 4 + 2 * difficulty),
            nonzero(rng, 4 + 3 * difficulty),
            rng.randint(2, 2 + difficulty),
        ),
        question=lambda p: (
            f"Two (possibly complex) numbers $x, y$ have $x + y = {p[0]}$ and $xy = {p[1]}$. "
            f"Find $x^{{{p[2]}}} + y^{{{p[2]}}}$."
        ),
        answer=Calculation(_power_sum),
    ),
    Family(
        name="root_reciprocals",
        sample=lambda rng, difficulty: (
            nonzero(rng, 2 * difficulty),
            nonzero(rng, 9 * difficulty),
            nonzero(rng, 9 * difficulty),
        ),
        question=lambda p: (
            f"The (possibly complex) solutions of ${polynomial(p)} = 0$ "
            "are $r$ and $s$. Find $\\frac{1}{r} + \\frac{1}{s}$."
        ),
        answer=Calculation(lambda p: -1 * p[1] / p[2]),
    ),
    Family(
        name="composed_functions",
        sample=_composed,
        question=lambda p: (
            f"Let $f(x) = {polynomial(p[:2])}$ and $g(x) = {polynomial(p[2:5])}$. "
            f"Find $f(g({p[5]}))$."
        ),
        answer=Calculation(_composed_answer),
    ),
)


def _series(rng: random.Random, difficulty: int) -> Params:
    bound = 5 + 10 * difficulty
    return (rng.randint(-bound, bound), nonzero(rng, bound), rng.randint(8, 10 * 2**difficulty))


def _geometric_answer(params: Sequence[Any]) -> Any:
    term, top, bottom, count = params
    ratio, total = top / bottom, term
    for _ in range(int(count) - 1):
        term = term * ratio
        total = total + term
    return total


def _recurrence(rng: random.Random, difficulty: int) -> Params:
    bound = 2 + difficulty
    return (
        nonzero(rng, bound), nonzero(rng, bound), rng.randint(-bound, bound), nonzero(rng, bound),
        rng.randint(4 + difficulty, 5 + 3 * difficulty),
    )  # fmt: skip


def _recurrence_answer(params: Sequence[Any]) -> Any:
    p, q, first, second, index = params
    terms = [first, second]
    while len(terms) < int(index):
        terms.append(p * terms[-1] + q * terms[-2])
    return terms[-1]


def _telescope_answer(params: Params) -> str:
    gap, count = params
    # All terms between the first and the last `gap` cancel.
    kept = sum((Fraction(1, k) - Fraction(1, count + k) for k in range(1, gap + 1)), Fraction(0))
    return latex(kept / gap)


def _power_total_answer(params: Params) -> str:
    a, b, power, n = params
    squares = n * (n + 1) * (2 * n + 1) // 6
    cubes = (n * (n + 1) // 2) ** 2
    return str(a * (squares if power == 2 else cubes) + b * n)


def _repeating(rng: random.Random, difficulty: int) -> Params:
    # A period of nines would be an integer in disguise: the largest number is left out.
    length = 2 + difficulty // 2
    return (length, rng.randint(1, 10**length - 2), rng.randint(0, 3 * difficulty))


SEQUENCES = (
    Family(
        name="arithmetic_series",
        sample=_series,
        question=lambda p: (
            f"An arithmetic sequence starts with {p[0]} and has the common difference {p[1]}. "
            f"Find the sum of its first {p[2]} terms."
        ),
        answer=Calculation(lambda p: p[2] * (2 * p[0] + (p[2] - 1) * p[1]) / 2),
    ),
    Family(
        name="geometric_series",
        sample=lambda rng, difficulty: (
            (
                rng.randint(1, 6 * difficulty),
                nonzero(rng, 2 + difficulty),
                rng.randint(2, 5 + difficulty),
                rng.randint(3, 4 + difficulty),
            )
        ),
        question=lambda p: (
            f"A geometric sequence starts with {p[0]} and has the ratio "
            f"${latex(Fraction(p[1], p[2]))}$. Find the exact sum of its first {p[3]} terms."
        ),
        answer=Calculation(_geometric_answer),
        canonical=lambda p: (p[0], *Fraction(p[1], p[2]).as_integer_ratio(), p[3]),
    ),
    Family(
        name="recurrence_term",
        sample=_recurrence,
        question=lambda p: (
            f"A sequence has $a_1 = {p[2]}$, $a_2 = {p[3]}$ and "
            f"$a_n = {combination((p[0], 'a_{n-1}'), (p[1], 'a_{n-2}'))}$ for $n \\ge 3$. "
            f"Find $a_{{{p[4]}}}$."
        ),
        answer=Calculation(_recurrence_answer),
    ),
    Family(
        name="telescoping_sum",
        sample=lambda rng, difficulty: (
            rng.randint(1, 2 + difficulty),
            rng.randint(4, 30 + 30 * difficulty),
        ),
        question=lambda p: (
            f"Find the exact value of $\\sum_{{k=1}}^{{{p[1]}}} \\frac{{1}}{{k(k+{p[0]})}}$."
        ),
        answer=_telescope_answer,
    ),
    Family(
        name="power_total",
        sample=lambda rng, difficulty: (
            (
                rng.randint(1, 9),
                nonzero(rng, 9),
                rng.randint(2, 3),
                rng.randint(5, 8 + 12 * difficulty),
            )
        ),
        question=lambda p: (
            f"Calculate $\\sum_{{k=1}}^{{{p[3]}}} "
            f"({combination((p[0], f'k^{p[2]}'), (p[1], ''))})$."
        ),
        answer=_power_total_answer,
    ),
    Family(
        name="repeating_decimal",
        sample=_repeating,
        question=lambda p: (
            f"Write the repeating decimal ${p[2]}.\\overline{{{p[1]:0{p[0]}d}}}$ as a fraction in "
            "lowest terms."
        ),
        answer=Calculation(lambda p: p[2] + p[1] / (10 ** int(p[0]) - 1)),
        canonical=lambda p: (p[2], *Fraction(p[1], 10 ** p[0] - 1).as_integer_ratio()),
        form="fraction",
    ),
)


def _triangle(rng: random.Random, difficulty: int) -> Params:
    bound = 3 + 4 * difficulty
    while True:
        corners = tuple(rng.randint(-bound, bound) for _ in range(6))
        # Three corners on one line are no triangle.
        if _doubled_area(corners):
            return corners


def _doubled_area(params: Params) -> int:
    ax, ay, bx, by, cx, cy = params
    return abs((bx - ax) * (cy - ay) - (cx - ax) * (by - ay))


def _triangle_canonical(params: Params) -> Params:
    points = sorted(zip(params[::2], params[1::2], strict=True))
    return tuple(n for point in points for n in point)


def _corners(params: Params) -> str:
    return ", ".join(f"$({x},{y})$" for x, y in zip(params[::2], params[1::2], strict=True))


def _inside_answer(params: Params) -> str:
    corners = list(zip(params[::2], params[1::2], strict=True))
    edges = zip(corners, corners[1:] + corners[:1], strict=True)
    # Pick's theorem: what lies inside follows from the area and the points on the border.
    border = sum(math.gcd(bx - ax, by - ay) for (ax, ay), (bx, by) in edges)
    return str((_doubled_area(params) - border + 2) // 2)


def _root(square: int) -> str:
    # The largest square comes out, so that there is one simplest form.
    outside = max(k for k in range(1, math.isqrt(square) + 1) if square % (k * k) == 0)
    inside = square // outside**2
    if inside == 1:
        return str(outside)
    return ("" if outside == 1 else str(outside)) + rf"\sqrt{{{inside}}}"


def _ring(rng: random.Random, difficulty: int) -> Params:
    inner = rng.randint(1, 10 + 20 * difficulty)
    return (inner, rng.randint(inner + 1, 2 * inner + 15))


def _right(rng: random.Random, difficulty: int) -> Params:
    # Euclid's formula: all three sides are integers, and so is the radius.
    m = rng.randint(2, 5 + 2 * difficulty)
    n = rng.randint(1, m - 1)
    return (m * m - n * n, 2 * m * n, rng.randint(1, 9 + 3 * difficulty))


GEOMETRY = (
    Family(
        name="triangle_area",
        sample=_triangle,
        question=lambda p: f"Find the exact area of the triangle with the corners {_corners(p)}.",
        answer=lambda p: latex(Fraction(_doubled_area(p), 2)),
        canonical=_triangle_canonical,
    ),
    Family(
        name="points_inside",
        sample=_triangle,
        question=lambda p: (
            "How many points with integer coordinates lie strictly inside the triangle with the "
            f"corners {_corners(p)}?"
        ),
        answer=_inside_answer,
        canonical=_triangle_canonical,
    ),
    Family(
        name="box_diagonal",
        sample=lambda rng, difficulty: tuple(rng.randint(1, 4 + 4 * difficulty) for _ in range(3)),
        question=lambda p: (
            f"A box measures {p[0]} by {p[1]} by {p[2]}. "
            "How long is the diagonal through its inside? Give the exact value."
        ),
        answer=lambda p: _root(sum(side * side for side in p)),
        canonical=lambda p: tuple(sorted(p)),
    ),
    Family(
        name="ring_area",
        sample=_ring,
        question=lambda p: (
            f"Find the exact area between two circles with the same centre and the radii {p[0]} "
            f"and {p[1]}."
        ),
        answer=lambda p: rf"{p[1] ** 2 - p[0] ** 2}\pi",
    ),
    Family(
        name="polygon_angle",
        sample=lambda rng, difficulty: (rng.randint(5, 150 * difficulty),),
        question=lambda p: (
            f"How many degrees has each interior angle of a regular polygon with {p[0]} sides? "
            "Give the exact value."
        ),
        answer=Calculation(lambda p: 180 * (p[0] - 2) / p[0]),
    ),
    Family(
        name="tree_shadow",
        sample=lambda rng, difficulty: tuple(rng.randint(2, 8 + 9 * difficulty) for _ in range(3)),
        question=lambda p: (
            f"A pole of height {p[0]} casts a shadow of length {p[1]}. At the same time a tree "
            f"casts a shadow of length {p[2]}. How high is the tree? Give the exact value."
        ),
        answer=Calculation(lambda p: p[0] * p[2] / p[1]),
    ),
    Family(
        name="inscribed_circle",
        sample=_right,
        question=lambda p: (
            f"A right triangle has legs of length {p[0] * p[2]} and {p[1] * p[2]}. "
            "Find the radius of the circle that touches all three sides."
        ),
        answer=lambda p: str((p[0] + p[1] - math.isqrt(p[0] ** 2 + p[1] ** 2)) * p[2] // 2),
        canonical=lambda p: tuple(sorted((p[0] * p[2], p[1] * p[2]))),
    ),
)
