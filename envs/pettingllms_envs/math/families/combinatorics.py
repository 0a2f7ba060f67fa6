"""Generated questions: counting and chance."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from pettingllms_envs.math.families.family import Family, Params, latex, listed


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
    for mask in range(1, 1 << len(divisors)):
        chosen = [d for i, d in enumerate(divisors) if mask >> i & 1]
        total += (-1) ** (len(chosen) + 1) * (limit // math.lcm(*chosen))
    return str(total)


def _fixed(rng: random.Random, difficulty: int) -> Params:
    people = rng.randint(4, 5 + 2 * difficulty)
    return (people, rng.randint(0, people - 2), rng.randint(0, 999))


def _fixed_answer(params: Params) -> str:
    rest = params[0] - params[1]
    none = sum((-1) ** k * math.factorial(rest) // math.factorial(k) for k in range(rest + 1))
    return str(math.comb(params[0], params[1]) * none + params[2])


def _dice(rng: random.Random, difficulty: int) -> Params:
    dice, faces = rng.randint(2, 2 + difficulty // 2), rng.randint(4, 12 + 2 * difficulty)
    return (dice, faces, rng.randint(dice, dice * faces))


def _dice_answer(params: Params) -> str:
    dice, faces, total = params
    ways = sum(
        (-1) ** k * math.comb(dice, k) * math.comb(total - faces * k - 1, dice - 1)
        for k in range((total - dice) // faces + 1)
    )
    return latex(Fraction(ways, faces**dice))


FAMILIES = (
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
