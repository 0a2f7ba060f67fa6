"""Generated questions: divisibility and remainders."""

from __future__ import annotations

import math
import random

from pettingllms_envs.math.families.family import Family, Params, listed


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


FAMILIES = (
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
