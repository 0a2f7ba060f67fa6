"""Built-in problems: divisibility, primes and notations."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _gcd_case(rng: random.Random, size: int) -> str:
    factor = rng.choice((1, 1, 2, 6, 35))
    values = [
        factor * rng.randint(1, scaled(size, 6, 500)) for _ in range(rng.randint(1, 1 + size))
    ]
    return rows(len(values), row(values))


def _gcd_answer(text: str) -> str:
    values = ints(text)[1:]
    return f"{math.gcd(*values)} {math.lcm(*values)}"


def _prime_case(rng: random.Random, size: int) -> str:
    first = rng.randint(1, scaled(size, 5, 40000))
    return rows(f"{first} {first + rng.randrange(scaled(size, 10, 10000))}")


def _prime_answer(text: str) -> str:
    first, last = ints(text)
    sieve = [False, False] + [True] * (last - 1)
    for p in range(2, math.isqrt(last) + 1):
        if sieve[p]:
            sieve[p * p :: p] = [False] * len(range(p * p, last + 1, p))
    return str(sum(sieve[first : last + 1]))


def _divisor_case(rng: random.Random, size: int) -> str:
    root = rng.randint(1, scaled(size, 4, 900))
    return rows(rng.choice((root * root, rng.randint(1, scaled(size, 10, 10**5)))))


def _divisor_answer(text: str) -> str:
    n = int(text)
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    return f"{len(divisors)} {sum(divisors)}"


def _fraction_case(rng: random.Random, size: int) -> str:
    top, bottom = (rng.randint(-scaled(size, 5, 10**5), scaled(size, 5, 10**5)) for _ in range(2))
    factor = rng.randint(1, 20)
    return rows(f"{top * factor} {(bottom or 1) * factor}")


def _totient_answer(text: str) -> str:
    n = int(text)
    return str(sum(math.gcd(k, n) == 1 for k in range(1, n + 1)))


def _zeros_answer(text: str) -> str:
    n, base = ints(text)
    product, zeros = math.factorial(n), 0
    while product % base == 0:
        product, zeros = product // base, zeros + 1
    return str(zeros)


def _palindrome_base_answer(text: str) -> str:
    n = int(text)
    for base in range(2, n + 2):
        digits: list[int] = []
        rest = n
        while rest:
            rest, digit = divmod(rest, base)
            digits.append(digit)
        if digits == digits[::-1]:
            return str(base)
    raise AssertionError("one digit is a palindrome in base n + 1")


EXERCISES = (
    Exercise(
        id="gcd_and_lcm",
        difficulty="easy",
        task="Find the greatest common divisor and the least common multiple of a list.",
        input_format="The first line holds n (1 to 11), the second n integers from 1 to 20000.",
        output_format="Two integers on one line: the divisor and the multiple.",
        example="3\n12 18 30",
        edges=("1\n7", "2\n4 6", "3\n6 10 15", "3\n5 5 5", "2\n9 27"),
        case=_gcd_case,
        answer=_gcd_answer,
        solution="""
            def gcd(a, b):
                while b:
                    a, b = b, a % b
                return a

            n = int(input())
            divisor, multiple = 0, 1
            for v in map(int, input().split()):
                divisor = gcd(divisor, v)
                multiple = multiple * v // gcd(multiple, v)
            print(divisor, multiple)
        """,
        wrong=(
            (" // gcd(multiple, v)", ""),
            ("divisor = gcd(divisor, v)", "divisor = gcd(multiple, v)"),
        ),
    ),
    Exercise(
        id="primes_between",
        difficulty="easy",
        task="Count the prime numbers from a to b, both included.",
        input_format="Two integers a and b on one line, 1 <= a <= b <= 50000.",
        output_format="The number of primes.",
        example="10 20",
        edges=("1 1", "1 2", "2 2", "9 9", "25 25", "24 28", "7 11"),
        case=_prime_case,
        answer=_prime_answer,
        solution="""
            def is_prime(n):
                if n < 2:
                    return False
                d = 2
                while d * d <= n:
                    if n % d == 0:
                        return False
                    d += 1
                return True

            a, b = map(int, input().split())
            print(sum(is_prime(n) for n in range(a, b + 1)))
        """,
        wrong=(("d * d <= n", "d * d < n"), ("n < 2", "n < 1")),
    ),
    Exercise(
        id="divisor_count_and_sum",
        difficulty="introductory",
        task="Count the positive divisors of a number and add them up. 1 and the number itself are "
        "divisors.",
        input_format="One integer n, 1 <= n <= 10^6.",
        output_format="Two integers on one line: the count and the sum.",
        example="12",
        edges=("1", "2", "9", "97", "36"),
        case=_divisor_case,
        answer=_divisor_answer,
        solution="""
            n = int(input())
            count = total = 0
            d = 1
            while d * d <= n:
                if n % d == 0:
                    for divisor in {d, n // d}:
                        count += 1
                        total += divisor
                d += 1
            print(count, total)
        """,
        wrong=(("{d, n // d}", "(d, n // d)"), ("d * d <= n", "d * d < n")),
    ),
    Exercise(
        id="lowest_terms",
        difficulty="easy",
        task="Write a fraction in lowest terms. The denominator of the result is positive; a "
        "result with denominator 1 is written as an integer.",
        input_format="Two integers on one line, the numerator and the denominator, each at most "
        "2 * 10^6 in size. The denominator is not 0.",
        output_format="The fraction as p/q, or p alone if q is 1.",
        example="6 -8",
        edges=("0 5", "-4 -2", "7 1", "-3 9", "0 -3", "5 -5"),
        case=_fraction_case,
        answer=lambda text: str(Fraction(*ints(text))),
        solution="""
            from math import gcd

            p, q = map(int, input().split())
            if q < 0:
                p, q = -p, -q
            g = gcd(p, q)
            p, q = p // g, q // g
            print(p if q == 1 else f"{p}/{q}")
        """,
        wrong=(("if q < 0:", "if p > 0 > q:"), ('p if q == 1 else f"{p}/{q}"', 'f"{p}/{q}"')),
    ),
    Exercise(
        id="coprime_count",
        difficulty="medium",
        task="Count the integers from 1 to n that have no common divisor with n other than 1.",
        input_format="One integer n, 1 <= n <= 45000.",
        output_format="The count.",
        example="12",
        edges=("1", "2", "7", "8", "36", "9973"),
        case=lambda rng, size: rows(
            rng.choice((1, 4, 9, 1)) * rng.randint(1, scaled(size, 8, 5000))
        ),
        answer=_totient_answer,
        solution="""
            n = int(input())
            result, rest, p = n, n, 2
            while p * p <= rest:
                if rest % p == 0:
                    while rest % p == 0:
                        rest //= p
                    result -= result // p
                p += 1
            if rest > 1:
                result -= result // rest
            print(result)
        """,
        wrong=(
            ("while rest % p == 0:", "if rest % p == 0:"),
            """
            n = int(input())
            print(sum(n % k != 0 for k in range(2, n)) + 1)
            """,
        ),
    ),
    Exercise(
        id="factorial_zeros",
        difficulty="hard",
        task="How many zeros stand at the end of n! (the product of 1, 2, ..., n; 0! is 1) when it "
        "is written in base b?",
        input_format="Two integers n and b on one line, 0 <= n <= 600, 2 <= b <= 16.",
        output_format="The number of zeros.",
        example="10 10",
        edges=("0 2", "1 16", "3 12", "9 12", "4 8", "8 16", "9 9", "12 12", "25 10", "100 12"),
        case=lambda rng, size: rows(
            f"{rng.randint(0, scaled(size, 12, 600))} {rng.choice((2, 6, 8, 9, 10, 12, 16))}"
        ),
        answer=_zeros_answer,
        solution="""
            n, base = map(int, input().split())
            zeros = None
            p = 2
            while base > 1:
                power = 0
                while base % p == 0:
                    base //= p
                    power += 1
                if power:
                    count, q = 0, p
                    while q <= n:
                        count += n // q
                        q *= p
                    zeros = count // power if zeros is None else min(zeros, count // power)
                p += 1
            print(zeros)
        """,
        wrong=(
            (
                "zeros = count // power if zeros is None else min(zeros, count // power)",
                "zeros = count // power",
            ),
            (
                "zeros = count // power if zeros is None else min(zeros, count // power)",
                "zeros = count if zeros is None else min(zeros, count)",
            ),
        ),
    ),
    Exercise(
        id="palindrome_base",
        difficulty="medium",
        task="Find the smallest base b >= 2 in which n reads the same from both ends.",
        input_format="One integer n, 1 <= n <= 20000.",
        output_format="The base, in decimal.",
        example="10",
        edges=("1", "2", "3", "4", "6", "11", "100"),
        case=lambda rng, size: rows(rng.randint(1, scaled(size, 12, 20000))),
        answer=_palindrome_base_answer,
        solution="""
            n = int(input())
            base = 2
            while True:
                digits, rest = [], n
                while rest:
                    digits.append(rest % base)
                    rest //= base
                if digits == digits[::-1]:
                    break
                base += 1
            print(base)
        """,
        wrong=(
            ("digits == digits[::-1]", "digits[0] == digits[-1]"),
            ("base = 2\n", "base = 3\n"),
        ),
    ),
)
