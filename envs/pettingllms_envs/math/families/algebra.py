"""Generated questions: equations, polynomials and inequalities."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from pettingllms_envs.math.families.calculation import Calculation
from pettingllms_envs.math.families.family import (
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


FAMILIES = (
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
