"""Built-in problems: ordering and looking up."""

from __future__ import annotations

import itertools
import random
import statistics

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _ranking_case(rng: random.Random, size: int) -> str:
    count = rng.randint(1, scaled(size, 3, 60))
    names = rng.sample(["".join(p) for p in itertools.product("abc", repeat=4)], count)
    return rows(count, *(f"{name} {rng.randint(0, 3 + size)}" for name in names))


def _ranking_answer(text: str) -> str:
    tokens = text.split()[1:]
    people = sorted(zip(tokens[::2], map(int, tokens[1::2]), strict=True))
    people.sort(key=lambda person: person[1], reverse=True)
    return "\n".join(name for name, _ in people)


def _median_case(rng: random.Random, size: int) -> str:
    values = [rng.randint(-100, 100) for _ in range(rng.randint(1, scaled(size, 4, 300)))]
    return rows(len(values), row(values))


def _at_least_case(rng: random.Random, size: int) -> str:
    high = scaled(size, 5, 5000)
    values = sorted(rng.randint(0, high) for _ in range(rng.randint(1, scaled(size, 3, 3000))))
    queries = [rng.randint(0, high + 1) for _ in range(scaled(size, 2, 500))]
    return rows(f"{len(values)} {len(queries)}", row(values), row(queries))


def _at_least_answer(text: str) -> str:
    n, _, *rest = ints(text)
    return row(sum(value >= query for value in rest[:n]) for query in rest[n:])


def _h_index_case(rng: random.Random, size: int) -> str:
    values = [
        rng.randint(0, scaled(size, 4, 60)) for _ in range(rng.randint(1, scaled(size, 3, 100)))
    ]
    return rows(len(values), row(values))


def _h_index_answer(text: str) -> str:
    values = ints(text)[1:]
    fits = (h for h in range(len(values) + 1) if sum(v >= h for v in values) >= h)
    return str(max(fits))


def _closest_case(rng: random.Random, size: int) -> str:
    spread = scaled(size, 10, 10**6)
    values = [rng.randint(-spread, spread) for _ in range(rng.randint(2, scaled(size, 3, 300)))]
    return rows(len(values), row(values))


def _closest_answer(text: str) -> str:
    values = ints(text)[1:]
    return str(min(abs(a - b) for a, b in itertools.combinations(values, 2)))


def _inversion_case(rng: random.Random, size: int) -> str:
    values = [rng.randint(0, 2 + 8 * size) for _ in range(rng.randint(1, scaled(size, 4, 500)))]
    return rows(len(values), row(values))


EXERCISES = (
    Exercise(
        id="score_ranking",
        difficulty="easy",
        task="List people by score, the highest first; people with the same score come in "
        "alphabetical order.",
        input_format="The first line holds n (1 to 60). Each of the next n lines holds a name "
        "(letters a-z, all names differ) and an integer score from 0 to 20.",
        output_format="The names, one per line.",
        example="3\nbob 9\nann 9\neve 12",
        edges=("1\na 0", "3\nc 1\nb 1\na 1", "2\nzoe 10\nadam 9", "2\na 2\nb 10"),
        case=_ranking_case,
        answer=_ranking_answer,
        solution="""
            n = int(input())
            people = []
            for _ in range(n):
                name, score = input().split()
                people.append((-int(score), name))
            for _, name in sorted(people):
                print(name)
        """,
        wrong=(
            ("(-int(score), name)", "(int(score), name)"),
            """
            n = int(input())
            people = [input().split() for _ in range(n)]
            for name, score in sorted(people, key=lambda p: (int(p[1]), p[0]), reverse=True):
                print(name)
            """,
        ),
    ),
    Exercise(
        id="median_value",
        difficulty="introductory",
        task="Find the median of a list: the middle value of the sorted list, or the mean of the "
        "two middle values if their number is even.",
        input_format="The first line holds n (1 to 300), the second n integers between -100 and "
        "100.",
        output_format="The median with one decimal.",
        example="4\n3 1 2 10",
        edges=("1\n5", "2\n1 2", "3\n9 1 5", "2\n-1 -2", "4\n10 9 2 100"),
        case=_median_case,
        answer=lambda text: f"{statistics.median(ints(text)[1:]):.1f}",
        solution="""
            n = int(input())
            values = sorted(map(int, input().split()))
            middle = (values[n // 2] + values[(n - 1) // 2]) / 2
            print(f"{middle:.1f}")
        """,
        wrong=(
            ("sorted(map(int, input().split()))", "list(map(int, input().split()))"),
            ("(n - 1) // 2", "n // 2"),
        ),
    ),
    Exercise(
        id="count_at_least",
        difficulty="easy",
        task="For a sorted list and several bounds, count for each bound how many values of the "
        "list are greater than or equal to it.",
        input_format="The first line holds n (1 to 3000) and q (1 to 500), the second the n "
        "values in ascending order, the third the q bounds. All are integers from 0 to 5001.",
        output_format="The q counts on one line.",
        example="5 3\n1 3 3 7 9\n3 8 10",
        edges=("1 2\n4\n4 5", "3 2\n2 2 2\n2 3", "2 1\n0 1\n0"),
        case=_at_least_case,
        answer=_at_least_answer,
        solution="""
            from bisect import bisect_left

            n, q = map(int, input().split())
            values = list(map(int, input().split()))
            print(*(n - bisect_left(values, x) for x in map(int, input().split())))
        """,
        wrong=(
            """
            from bisect import bisect_right

            n, q = map(int, input().split())
            values = list(map(int, input().split()))
            print(*(n - bisect_right(values, x) for x in map(int, input().split())))
            """,
            ("n - bisect_left", "bisect_left"),
        ),
    ),
    Exercise(
        id="h_index",
        difficulty="medium",
        task="Find the largest number h such that at least h values of a list are h or more.",
        input_format="The first line holds n (1 to 100), the second n integers between 0 and 60.",
        output_format="The number h.",
        example="5\n3 0 6 1 5",
        edges=("1\n0", "1\n9", "4\n4 4 4 4", "3\n1 1 1", "2\n100 100"),
        case=_h_index_case,
        answer=_h_index_answer,
        solution="""
            n = int(input())
            values = sorted(map(int, input().split()), reverse=True)
            h = 0
            while h < n and values[h] >= h + 1:
                h += 1
            print(h)
        """,
        wrong=(
            ("values[h] >= h + 1", "values[h] >= h"),
            ("values[h] >= h + 1", "values[h] > h + 1"),
        ),
    ),
    Exercise(
        id="closest_values",
        difficulty="introductory",
        task="Find the smallest difference between two values of a list in different places.",
        input_format="The first line holds n (2 to 300), the second n integers between -10^6 and "
        "10^6.",
        output_format="The smallest difference.",
        example="4\n10 3 -4 6",
        edges=("2\n5 5", "2\n-3 4", "3\n1 100 3", "4\n-1 -5 -9 -8"),
        case=_closest_case,
        answer=_closest_answer,
        solution="""
            n = int(input())
            values = sorted(map(int, input().split()))
            print(min(values[i + 1] - values[i] for i in range(n - 1)))
        """,
        wrong=(
            """
            n = int(input())
            values = list(map(int, input().split()))
            print(min(abs(values[i + 1] - values[i]) for i in range(n - 1)))
            """,
            """
            n = int(input())
            values = sorted(map(lambda v: abs(int(v)), input().split()))
            print(min(values[i + 1] - values[i] for i in range(n - 1)))
            """,
        ),
    ),
    Exercise(
        id="inversions",
        difficulty="medium",
        task="Count the pairs of positions i < j of a list where the earlier number is larger "
        "than the later one.",
        input_format="The first line holds n (1 to 500), the second n integers between 0 and 100.",
        output_format="The number of pairs.",
        example="4\n3 1 2 2",
        edges=("1\n7", "2\n5 5", "5\n5 4 3 2 1", "4\n1 2 3 4"),
        case=_inversion_case,
        answer=lambda text: str(sum(a > b for a, b in itertools.combinations(ints(text)[1:], 2))),
        solution="""
            from bisect import bisect_right, insort

            n = int(input())
            seen, count = [], 0
            for v in map(int, input().split()):
                count += len(seen) - bisect_right(seen, v)
                insort(seen, v)
            print(count)
        """,
        wrong=(
            """
            n = int(input())
            values = list(map(int, input().split()))
            print(sum(values[i] > values[i + 1] for i in range(n - 1)))
            """,
            """
            n = int(input())
            values = list(map(int, input().split()))
            print(sum(values[i] >= values[j] for j in range(n) for i in range(j)))
            """,
        ),
    ),
)
