"""Built-in problems: counting, remainders and calendars."""

from __future__ import annotations

import calendar
import random
from fractions import Fraction

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _minutes_case(rng: random.Random, size: int) -> str:
    first, second = (f"{rng.randrange(24):02d}:{rng.randrange(60):02d}" for _ in range(2))
    return rows(first, first if size == 2 else second)


def _minutes_answer(text: str) -> str:
    clock = [h * 60 + m for h, m in ((int(t[:2]), int(t[3:])) for t in text.split())]
    passed, now = 0, clock[0]
    while now != clock[1]:
        now, passed = (now + 1) % 1440, passed + 1
    return str(passed)


def _crates_case(rng: random.Random, size: int) -> str:
    capacity = rng.randint(1, scaled(size, 4, 10**6))
    items = capacity * rng.randint(0, 9) + rng.choice((0, 0, 1, rng.randrange(capacity)))
    return rows(f"{items} {capacity}")


def _crates_answer(text: str) -> str:
    items, capacity = ints(text)
    return str((items + capacity - 1) // capacity)


def _leap_case(rng: random.Random, size: int) -> str:
    first = rng.randint(1, 9900)
    return rows(f"{first} {min(9999, first + rng.randrange(scaled(size, 8, 5000)))}")


def _leap_answer(text: str) -> str:
    first, last = ints(text)
    return str(sum(calendar.isleap(year) for year in range(first, last + 1)))


def _mean_case(rng: random.Random, size: int) -> str:
    values = [rng.randint(-1000, 1000) for _ in range(rng.randint(3, scaled(size, 4, 1000)))]
    return rows(len(values), row(values))


def _mean_answer(text: str) -> str:
    values = sorted(ints(text)[1:])
    return f"{float(Fraction(sum(values[1:-1]), len(values) - 2)):.6f}"


def _hailstone_answer(text: str) -> str:
    def visit(n: int) -> tuple[int, int]:
        path = [n]
        while path[-1] != 1:
            path.append(path[-1] // 2 if path[-1] % 2 == 0 else 3 * path[-1] + 1)
        return len(path) - 1, max(path)

    return row(visit(int(text)))


def _coins_answer(text: str) -> str:
    cents = int(text)
    whole, rest = divmod(cents, 100)
    fewest = [0] + [99] * 99
    for amount in range(1, 100):
        fewest[amount] = 1 + min(fewest[amount - c] for c in (1, 5, 10, 25) if c <= amount)
    return str(4 * whole + fewest[rest])


EXERCISES = (
    Exercise(
        id="digit_sum",
        difficulty="introductory",
        task="Add up the decimal digits of an integer. The sign does not matter.",
        input_format="One integer n, with at most 30 digits. It may be negative.",
        output_format="The sum of the digits of n.",
        example="-4071",
        edges=("0", "-5", "999999999999999999999999999999"),
        case=lambda rng, size: rows(rng.choice((-1, 1)) * rng.randrange(10 ** (3 * size))),
        answer=lambda text: str(sum(map(int, text.strip().lstrip("-")))),
        solution="""
            n = abs(int(input()))
            total = 0
            while n > 0:
                total += n % 10
                n //= 10
            print(total)
        """,
        wrong=(
            ("abs(int(input()))", "int(input())"),
            ("n > 0", "n > 9"),
        ),
    ),
    Exercise(
        id="minutes_until",
        difficulty="introductory",
        task="A timer starts at one time of the day and rings when the clock next shows another. "
        "If both times are equal it rings at once. How many minutes pass?",
        input_format="Two lines, each a time HH:MM on the 24-hour clock: start, then ring.",
        output_format="The number of minutes, from 0 to 1439.",
        example="23:50\n00:15",
        edges=("00:00\n00:00", "12:00\n11:59", "00:00\n23:59", "09:05\n09:07"),
        case=_minutes_case,
        answer=_minutes_answer,
        solution="""
            def minutes(text):
                hours, mins = text.split(":")
                return 60 * int(hours) + int(mins)

            start = minutes(input())
            ring = minutes(input())
            print((ring - start) % 1440)
        """,
        wrong=(("(ring - start) % 1440", "abs(ring - start)"), ("% 1440", "% 720")),
    ),
    Exercise(
        id="crates_needed",
        difficulty="introductory",
        task="Items are packed into crates, each holding the same number of items. "
        "Find the fewest crates that hold all items.",
        input_format="Two integers on one line: items (0 to 10^7) and capacity (1 to 10^6).",
        output_format="The number of crates.",
        example="17 5",
        edges=("0 3", "10 5", "1 1000000", "9 1"),
        case=_crates_case,
        answer=_crates_answer,
        solution="""
            items, capacity = map(int, input().split())
            print(-(-items // capacity))
        """,
        wrong=(("-(-items // capacity)", "items // capacity + 1"), ("-(-items", "(items")),
    ),
    Exercise(
        id="leap_years_between",
        difficulty="introductory",
        task="Count the leap years from year a to year b, both included. A year is a leap year if "
        "it is divisible by 4, except for years divisible by 100 that are not divisible by 400.",
        input_format="Two integers a and b on one line, 1 <= a <= b <= 9999.",
        output_format="The number of leap years.",
        example="1896 1908",
        edges=("1900 1900", "2000 2000", "1 9999", "1996 1996", "2097 2103"),
        case=_leap_case,
        answer=_leap_answer,
        solution="""
            def up_to(year):
                return year // 4 - year // 100 + year // 400

            a, b = map(int, input().split())
            print(up_to(b) - up_to(a - 1))
        """,
        wrong=((" - year // 100 + year // 400", ""), ("up_to(a - 1)", "up_to(a)")),
    ),
    Exercise(
        id="trimmed_mean",
        difficulty="easy",
        task="A jury's score is the mean of its marks after one lowest and one highest mark are "
        "struck out (only one of each, even if several are equal).",
        input_format="The first line holds the number of marks n (3 to 1000), the second the n "
        "integer marks between -1000 and 1000.",
        output_format="The score, with an error of at most 10^-6.",
        example="5\n9 7 7 10 3",
        edges=("3\n1 2 4", "4\n5 5 5 5", "4\n-3 -3 -1 -8"),
        case=_mean_case,
        answer=_mean_answer,
        solution="""
            n = int(input())
            marks = list(map(int, input().split()))
            print((sum(marks) - min(marks) - max(marks)) / (n - 2))
        """,
        wrong=(("/ (n - 2)", "// (n - 2)"), ("/ (n - 2)", "/ n")),
    ),
    Exercise(
        id="hailstone",
        difficulty="introductory",
        task="Start with a positive integer. As long as it is not 1, halve it if it is even, "
        "otherwise multiply it by 3 and add 1. "
        "Report the number of operations and the largest number seen, the first included.",
        input_format="One integer n, 1 <= n <= 10^6.",
        output_format="Two integers on one line: operations and largest number.",
        example="6",
        edges=("1", "2", "27", "64", "837799"),
        case=lambda rng, size: rows(rng.randint(1, scaled(size, 6, 10**6))),
        answer=_hailstone_answer,
        solution="""
            n = int(input())
            count, largest = 0, n
            while n != 1:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                count += 1
                largest = max(largest, n)
            print(count, largest)
        """,
        wrong=(
            ("count, largest = 0, n", "count, largest = 1, n"),
            ("largest = 0, n", "largest = 0, 1"),
        ),
    ),
    Exercise(
        id="fewest_coins",
        difficulty="easy",
        task="Pay an amount with as few coins as possible. The coins are worth 1, 5, 10 and 25.",
        input_format="One integer, the amount, from 0 to 10^9.",
        output_format="The number of coins.",
        example="68",
        edges=("0", "4", "30", "99", "1000000000"),
        case=lambda rng, size: rows(rng.randint(0, scaled(size, 10, 10**9))),
        answer=_coins_answer,
        solution="""
            amount = int(input())
            coins = 0
            for value in (25, 10, 5, 1):
                coins += amount // value
                amount %= value
            print(coins)
        """,
        wrong=(("(25, 10, 5, 1)", "(25, 5, 10, 1)"), ("(25, 10, 5, 1)", "(25, 10, 1)")),
    ),
)
