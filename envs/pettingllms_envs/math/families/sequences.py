"""Generated questions: sums and recurrences."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from pettingllms_envs.math.families.calculation import Calculation
from pettingllms_envs.math.families.family import Family, Params, combination, latex, nonzero


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
    kept = sum((Fraction(1, k) - Fraction(1, count + k) for k in range(1, gap + 1)), Fraction(0))
    return latex(kept / gap)


def _power_total_answer(params: Params) -> str:
    a, b, power, n = params
    squares = n * (n + 1) * (2 * n + 1) // 6
    cubes = (n * (n + 1) // 2) ** 2
    return str(a * (squares if power == 2 else cubes) + b * n)


def _repeating(rng: random.Random, difficulty: int) -> Params:
    length = 2 + difficulty // 2
    return (length, rng.randint(1, 10**length - 2), rng.randint(0, 3 * difficulty))


FAMILIES = (
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
