"""Generated questions: arithmetic, divisibility and remainders, counting and chance."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

from pettingllms_envs.math.families.family import (
    Calculation,
    Family,
    Params,
    latex,
    listed,
    polynomial,
)


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
    # Easy questions have tens, with which one calculates in the head.
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


ARITHMETIC = (
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


def _several(rng: random.Random, difficulty: int) -> Params:
    factor = rng.choice((1, 2, 3, 4, 6))
    bound = 10 + 15 * difficulty
    return tuple(factor * rng.randint(2, bound) for _ in range(2 + difficulty // 2))


def _congruence(rng: random.Random, difficulty: int) -> Params:
    modulus = rng.randint(7, 12 + 30 * difficulty)
    factor = rng.choice([a for a in range(2, modulus) if math.gcd(a, modulus) == 1])
    return (factor, rng.randint(1, modulus - 1), modulus)


def _two_remainders(rng: random.Random, difficulty: int) -> Params:
    m = rng.randint(3, 8 + 9 * difficulty)
    n = rng.choice([k for k in range(m + 1, 2 * m + 9) if math.gcd(k, m) == 1])
    return (rng.randrange(m), m, rng.randrange(n), n)


def _two_remainders_answer(params: Params) -> str:
    a, m, b, n = params
    return str((a + m * ((b - a) * pow(m, -1, n) % n)) % (m * n))


def _composite(rng: random.Random, difficulty: int) -> Params:
    primes = (2, 3, 5, 7, 11, 13, 17, 19)
    number = 1
    for _ in range(2 + difficulty):
        number *= rng.choice(primes[: 3 + difficulty])
    return (number * rng.randint(1, 29),)


def _factors(number: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    prime = 2
    while number > 1:
        power = 0
        while number % prime == 0:
            number //= prime
            power += 1
        if power:
            found.append((prime, power))
        prime += 1
    return found


def _zeros_answer(params: Params) -> str:
    zeros, power = 0, 5
    while power <= params[0]:
        zeros += params[0] // power
        power *= 5
    return str(zeros)


NUMBER_THEORY = (
    Family(
        name="least_common_multiple",
        sample=_several,
        question=lambda p: f"Find the least common multiple of {listed(p)}.",
        answer=lambda p: str(math.lcm(*p)),
        canonical=lambda p: tuple(sorted(p)),
    ),
    Family(
        name="power_remainder",
        sample=lambda rng, difficulty: (
            (
                rng.randint(2, 9 + 10 * difficulty),
                rng.randint(5, 4**difficulty + 20),
                rng.randint(5, 20 + 30 * difficulty),
            )
        ),
        question=lambda p: f"Find the remainder when ${p[0]}^{{{p[1]}}}$ is divided by {p[2]}.",
        answer=lambda p: str(pow(*p)),
    ),
    Family(
        name="linear_congruence",
        sample=_congruence,
        question=lambda p: (
            f"Find the smallest non-negative integer $x$ for which ${p[0]}x$ leaves the remainder "
            f"{p[1]} when divided by {p[2]}."
        ),
        answer=lambda p: str(p[1] * pow(p[0], -1, p[2]) % p[2]),
    ),
    Family(
        name="two_remainders",
        sample=_two_remainders,
        question=lambda p: (
            f"Find the smallest non-negative integer that leaves the remainder {p[0]} when divided "
            f"by {p[1]} and the remainder {p[2]} when divided by {p[3]}."
        ),
        answer=_two_remainders_answer,
    ),
    Family(
        name="divisor_number",
        sample=_composite,
        question=lambda p: f"How many positive divisors does {p[0]} have?",
        answer=lambda p: str(math.prod(k + 1 for _, k in _factors(p[0]))),
    ),
    Family(
        name="divisor_sum",
        sample=_composite,
        question=lambda p: f"Find the sum of all positive divisors of {p[0]}, itself included.",
        answer=lambda p: str(math.prod((q ** (k + 1) - 1) // (q - 1) for q, k in _factors(p[0]))),
    ),
    Family(
        name="factorial_zeros",
        sample=lambda rng, difficulty: (rng.randint(10, 60 * 4**difficulty),),
        question=lambda p: f"With how many zeros does ${p[0]}!$ end in base ten?",
        answer=_zeros_answer,
    ),
    Family(
        name="coprime_numbers",
        sample=_composite,
        question=lambda p: (
            f"How many integers from 1 to {p[0]} have no common divisor with {p[0]} other than 1?"
        ),
        answer=lambda params: str(
            math.prod(p ** (k - 1) * (p - 1) for p, k in _factors(params[0]))
        ),
    ),
    Family(
        name="power_digit_sum",
        sample=lambda rng, difficulty: (
            rng.randint(2, 30),
            rng.randint(3 * difficulty, 8 * difficulty + 4),
        ),
        question=lambda p: f"Find the sum of the decimal digits of ${p[0]}^{{{p[1]}}}$.",
        answer=lambda p: str(sum(map(int, str(p[0] ** p[1])))),
    ),
)


def _committee(rng: random.Random, difficulty: int) -> Params:
    women, men = (rng.randint(4, 6 + 3 * difficulty) for _ in range(2))
    return (women, men, rng.randint(1, min(women, 1 + difficulty)), rng.randint(1, 2))


def _letters_question(params: Params) -> str:
    word = "".join(letter * count for letter, count in zip("ABCDEFGH", params, strict=False))
    return f"In how many different ways can the letters of {word} be put in order?"


def _shares(rng: random.Random, difficulty: int) -> Params:
    parts = rng.randint(3, 4 + difficulty)
    least = rng.randint(0, difficulty)
    return (parts, least, parts * least + rng.randint(4, 12 + 6 * difficulty))


def _shares_answer(params: Params) -> str:
    parts, least, total = params
    return str(math.comb(total - parts * least + parts - 1, parts - 1))


def _paths(rng: random.Random, difficulty: int) -> Params:
    east, north = (rng.randint(3, 4 + 2 * difficulty) for _ in range(2))
    return (east, north, rng.randint(1, east - 1), rng.randint(1, north - 1))


def _paths_answer(params: Params) -> str:
    east, north, x, y = params
    # Ways through the point are ways to it times ways from it.
    through = math.comb(x + y, x) * math.comb(east - x + north - y, east - x)
    return str(math.comb(east + north, east) - through)


def _marbles(rng: random.Random, difficulty: int) -> Params:
    red, blue = (rng.randint(3, 4 + 3 * difficulty) for _ in range(2))
    drawn = rng.randint(2, min(red + blue - 1, 2 + difficulty))
    wanted = rng.randint(max(0, drawn - blue), min(red, drawn))
    return (red, blue, drawn, wanted)


def _marbles_answer(params: Params) -> str:
    red, blue, drawn, wanted = params
    good = math.comb(red, wanted) * math.comb(blue, drawn - wanted)
    return latex(Fraction(good, math.comb(red + blue, drawn)))


def _multiples(rng: random.Random, difficulty: int) -> Params:
    divisors = rng.sample(range(2, 8 + 4 * difficulty), 2 + difficulty // 3)
    return (rng.randint(30, 40 * 3**difficulty), *divisors)


def _multiples_answer(params: Params) -> str:
    limit, *divisors = params
    total = 0
    # Inclusion and exclusion: multiples of several divisors would be counted more than once.
    for mask in range(1, 1 << len(divisors)):
        chosen = [d for i, d in enumerate(divisors) if mask >> i & 1]
        total += (-1) ** (len(chosen) + 1) * (limit // math.lcm(*chosen))
    return str(total)


def _fixed(rng: random.Random, difficulty: int) -> Params:
    people = rng.randint(4, 5 + 2 * difficulty)
    # There are few such counts: the number that is added makes many questions of them.
    return (people, rng.randint(0, people - 2), rng.randint(0, 999))


def _fixed_answer(params: Params) -> str:
    rest = params[0] - params[1]
    # Derangements of the rest: nobody else may get the own hat.
    none = sum((-1) ** k * math.factorial(rest) // math.factorial(k) for k in range(rest + 1))
    return str(math.comb(params[0], params[1]) * none + params[2])


def _dice(rng: random.Random, difficulty: int) -> Params:
    dice, faces = rng.randint(2, 2 + difficulty // 2), rng.randint(4, 12 + 2 * difficulty)
    return (dice, faces, rng.randint(dice, dice * faces))


def _dice_answer(params: Params) -> str:
    dice, faces, total = params
    # Inclusion and exclusion over dice that would show more than they have faces.
    ways = sum(
        (-1) ** k * math.comb(dice, k) * math.comb(total - faces * k - 1, dice - 1)
        for k in range((total - dice) // faces + 1)
    )
    return latex(Fraction(ways, faces**dice))


COMBINATORICS = (
    Family(
        name="committee",
        sample=_committee,
        question=lambda p: (
            f"From {p[0]} women and {p[1]} men a committee of {p[2]} women and {p[3]} men is "
            "chosen. In how many ways is that possible?"
        ),
        answer=lambda p: str(math.comb(p[0], p[2]) * math.comb(p[1], p[3])),
    ),
    Family(
        name="letter_orders",
        sample=lambda rng, difficulty: tuple(
            rng.randint(1, 4) for _ in range(rng.randint(3, 3 + difficulty))
        ),
        question=_letters_question,
        answer=lambda params: str(
            math.factorial(sum(params)) // math.prod(map(math.factorial, params))
        ),
        canonical=lambda p: tuple(sorted(p)),
    ),
    Family(
        name="equal_coins_shares",
        sample=_shares,
        question=lambda p: (
            f"{p[2]} equal coins are given to {p[0]} different people, at least {p[1]} to each. "
            "In how many ways is that possible?"
        ),
        answer=_shares_answer,
    ),
    Family(
        name="paths_around",
        sample=_paths,
        question=lambda p: (
            f"How many ways lead from $(0,0)$ to $({p[0]},{p[1]})$ by steps of length 1 to the "
            f"right or up without passing through $({p[2]},{p[3]})$?"
        ),
        answer=_paths_answer,
        canonical=lambda p: min(p, (p[1], p[0], p[3], p[2])),
    ),
    Family(
        name="drawn_marbles",
        sample=_marbles,
        question=lambda p: (
            f"A bag holds {p[0]} red and {p[1]} blue marbles. {p[2]} are drawn at random without "
            f"putting any back. What is the probability that exactly {p[3]} of them are red?"
        ),
        answer=_marbles_answer,
    ),
    Family(
        name="multiples_of_any",
        sample=_multiples,
        question=lambda p: (
            f"How many integers from 1 to {p[0]} are divisible by at least one of the numbers "
            f"{listed(p[1:])}?"
        ),
        answer=_multiples_answer,
        canonical=lambda p: (p[0], *sorted(p[1:])),
    ),
    Family(
        name="hats_returned",
        sample=_fixed,
        question=lambda p: (
            f"{p[0]} people get their hats back at random, one each. Let $N$ be the number of ways "
            f"in which exactly {p[1]} people get their own hat. Find $N + {p[2]}$."
        ),
        answer=_fixed_answer,
    ),
    Family(
        name="dice_total",
        sample=_dice,
        question=lambda p: (
            f"{p[0]} fair dice with the faces 1 to {p[1]} are thrown. "
            f"What is the probability that their total is {p[2]}?"
        ),
        answer=_dice_answer,
    ),
)
