"""Generated questions: calculating with whole numbers, fractions and percentages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

from pettingllms_envs.math.families.calculation import Calculation
from pettingllms_envs.math.families.family import Family, Params, listed, polynomial


def _expression(rng: random.Random, difficulty: int) -> Params:
    bound = 10 * 3**difficulty
    low = bound // 10
    return tuple(rng.randint(low, bound) for _ in range(4))


def _fractions(rng: random.Random, difficulty: int) -> Params:
    bound = 6 + 12 * difficulty
    count = 2 + difficulty // 3
    return tuple(n for _ in range(count) for n in (rng.randint(1, bound), rng.randint(2, bound)))


def _fraction_sum(params: Sequence[Any]) -> Any:
    return reduce(add, [a / b for a, b in zip(params[::2], params[1::2], strict=True)])


def _fractions_question(params: Params) -> str:
    pairs = zip(params[::2], params[1::2], strict=True)
    terms = " + ".join(rf"\frac{{{a}}}{{{b}}}" for a, b in pairs)
    return f"Calculate ${terms}$ exactly."


def _sorted_pairs(params: Params) -> Params:
    pairs = sorted(zip(params[::2], params[1::2], strict=True))
    return tuple(n for pair in pairs for n in pair)


def _percent(rng: random.Random, difficulty: int) -> Params:
    step = 10 if difficulty < 3 else 1
    changes = tuple(
        rng.choice((-1, 1)) * rng.randint(1, 90 // step) * step for _ in range(1 + difficulty // 2)
    )
    return (rng.randint(2, 20 * difficulty) * 50, *changes)


def _percent_question(params: Params) -> str:
    price, *changes = params
    steps = ", then ".join(
        f"{'rises' if change > 0 else 'falls'} by {abs(change)}%" for change in changes
    )
    return f"A price of {price} euros {steps} (each time of its value just before). What is it now?"


def _percent_answer(params: Sequence[Any]) -> Any:
    value, *changes = params
    for change in changes:
        value = value * (100 + change) / 100
    return value


def _base(rng: random.Random, difficulty: int) -> Params:
    base = rng.choice((2, 3, 4, 5, 6, 7, 8, 9))
    return (base, rng.randint(base**2, base ** (3 + difficulty)))


def _digits(number: int, base: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, base)
        text = str(digit) + text
    return text


def _base_value(params: Sequence[Any]) -> Any:
    base, number = params
    value, *digits = map(int, _digits(int(number), int(base)))
    for digit in digits:
        value = value * base + digit
    return value


def _mean(rng: random.Random, difficulty: int) -> Params:
    count = rng.randint(3, 4 + 2 * difficulty)
    mean = rng.randint(5, 20 * difficulty)
    return (count, mean, rng.randint(mean, mean + 5 * difficulty))


FAMILIES = (
    Family(
        name="expression",
        sample=_expression,
        question=lambda p: rf"Calculate ${p[0]} \cdot {p[1]} - {p[2]} \cdot ({p[3]} - {p[0]})$.",
        answer=Calculation(lambda p: p[0] * p[1] - p[2] * (p[3] - p[0])),
    ),
    Family(
        name="fraction_sum",
        sample=_fractions,
        question=_fractions_question,
        answer=Calculation(_fraction_sum),
        canonical=_sorted_pairs,
    ),
    Family(
        name="percent_chain",
        sample=_percent,
        question=_percent_question,
        answer=Calculation(_percent_answer),
        canonical=lambda p: (p[0], *sorted(p[1:])),
    ),
    Family(
        name="base_value",
        sample=_base,
        question=lambda p: (
            f"A number is written {_digits(p[1], p[0])} in base {p[0]}. Write it in base ten."
        ),
        answer=Calculation(_base_value),
    ),
    Family(
        name="missing_mark",
        sample=_mean,
        question=lambda p: (
            f"The mean of {p[0]} marks is {p[1]}. "
            f"What must the next mark be so that the mean of all becomes {p[2]}?"
        ),
        answer=Calculation(lambda p: p[2] * (p[0] + 1) - p[1] * p[0]),
    ),
    Family(
        name="joint_work",
        sample=lambda rng, difficulty: tuple(
            rng.randint(2, 16 + 8 * difficulty) for _ in range(2 + difficulty // 3)
        ),
        question=lambda p: (
            f"Alone, {len(p)} pumps empty a tank in {listed(p)} hours. "
            "How many hours do they need together? Give the exact value."
        ),
        answer=Calculation(lambda p: 1 / reduce(add, [1 / hours for hours in p])),
        canonical=lambda p: tuple(sorted(p)),
    ),
    Family(
        name="linear_equation",
        sample=lambda rng, difficulty: (
            rng.randint(2, 4 * difficulty + 2),
            rng.randint(-20 * difficulty, 20 * difficulty),
            -rng.randint(1, 4 * difficulty + 2),
            rng.randint(-20 * difficulty, 20 * difficulty),
        ),
        question=lambda p: f"Solve ${polynomial(p[:2])} = {polynomial(p[2:])}$ for $x$ exactly.",
        answer=Calculation(lambda p: (p[3] - p[1]) / (p[0] - p[2])),
    ),
)
