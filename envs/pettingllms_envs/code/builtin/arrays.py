"""Built-in problems: lists of numbers."""

from __future__ import annotations

import random
from collections import Counter

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _list_case(rng: random.Random, size: int, low: int, high: int, largest: int = 300) -> str:
    values = [rng.randint(low, high) for _ in range(rng.randint(1, scaled(size, 3, largest)))]
    return rows(len(values), row(values))


def _best_sum_answer(text: str) -> str:
    values = ints(text)[1:]
    n = len(values)
    return str(max(sum(values[i:j]) for i in range(n) for j in range(i + 1, n + 1)))


def _rotate_case(rng: random.Random, size: int) -> str:
    values = [rng.randint(0, 99) for _ in range(rng.randint(1, scaled(size, 4, 300)))]
    return rows(f"{len(values)} {rng.randint(0, 3 * len(values))}", row(values))


def _rotate_answer(text: str) -> str:
    n, k, *values = ints(text)
    for _ in range(k % n):
        values.insert(0, values.pop())
    return row(values)


def _runner_up_answer(text: str) -> str:
    distinct = sorted(set(ints(text)[1:]))
    return str(distinct[-2]) if len(distinct) > 1 else "none"


def _pair_sum_case(rng: random.Random, size: int) -> str:
    high = scaled(size, 3, 60)
    values = [rng.randint(-high, high) for _ in range(rng.randint(2, scaled(size, 4, 400)))]
    return rows(f"{len(values)} {rng.randint(-high, high)}", row(values))


def _pair_sum_answer(text: str) -> str:
    n, target, *values = ints(text)
    return str(sum(values[i] + values[j] == target for i in range(n) for j in range(i)))


def _range_sum_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 3, 5000))
    queries = [sorted((rng.randint(1, n), rng.randint(1, n))) for _ in range(scaled(size, 2, 5000))]
    values = [rng.randint(-1000, 1000) for _ in range(n)]
    return rows(f"{n} {len(queries)}", row(values), *(row(query) for query in queries))


def _range_sum_answer(text: str) -> str:
    n, _, *rest = ints(text)
    values, bounds = rest[:n], rest[n:]
    pairs = zip(bounds[::2], bounds[1::2], strict=True)
    return "\n".join(str(sum(values[a - 1 : b])) for a, b in pairs)


def _majority_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 4, 400))
    hits = rng.randint(n // 2 - 1, n // 2 + 2)
    values = [7 if i < hits else rng.choice((3, 5, 9)) for i in range(n)]
    rng.shuffle(values)
    return rows(n, row(values))


def _majority_answer(text: str) -> str:
    n, *values = ints(text)
    value, count = Counter(values).most_common(1)[0]
    return str(value) if 2 * count > n else "none"


def _water_answer(text: str) -> str:
    heights = ints(text)[1:]
    levels = (min(max(heights[: i + 1]), max(heights[i:])) for i in range(len(heights)))
    return str(sum(level - height for level, height in zip(levels, heights, strict=True)))


EXERCISES = (
    Exercise(
        id="best_stretch_sum",
        difficulty="medium",
        task="Choose a non-empty stretch of neighbouring numbers of a list so that their sum is as "
        "large as possible.",
        input_format="The first line holds n (1 to 300), the second n integers between -50 and 50.",
        output_format="The largest sum.",
        example="6\n3 -5 4 -1 2 -6",
        edges=("1\n-7", "3\n-4 -2 -9", "2\n5 5", "4\n0 0 -1 0"),
        case=lambda rng, size: _list_case(rng, size, -50, 50 if size % 2 else 1),
        answer=_best_sum_answer,
        solution="""
            n = int(input())
            values = list(map(int, input().split()))
            best = current = values[0]
            for v in values[1:]:
                current = max(v, current + v)
                best = max(best, current)
            print(best)
        """,
        wrong=(
            ("best = current = values[0]", "best = current = 0"),
            ("max(v, current + v)", "current + v"),
        ),
    ),
    Exercise(
        id="rotate_right",
        difficulty="introductory",
        task="Rotate a list k places to the right: in each step the last number moves to the "
        "front.",
        input_format="The first line holds n (1 to 300) and k (0 to 900), the second the n numbers "
        "between 0 and 99.",
        output_format="The rotated list on one line.",
        example="5 2\n1 2 3 4 5",
        edges=("1 5\n9", "3 0\n1 2 3", "3 3\n1 2 3", "4 7\n1 2 3 4"),
        case=_rotate_case,
        answer=_rotate_answer,
        solution="""
            n, k = map(int, input().split())
            values = input().split()
            cut = (n - k) % n
            print(*(values[cut:] + values[:cut]))
        """,
        wrong=(("cut = (n - k) % n", "cut = k % n"), ("cut = (n - k) % n", "cut = n - k")),
    ),
    Exercise(
        id="runner_up",
        difficulty="introductory",
        task="Find the second largest of the different values in a list.",
        input_format="The first line holds n (1 to 300), the second n integers between -20 and 20.",
        output_format="The second largest value, or none if all values are equal.",
        example="5\n4 9 9 2 4",
        edges=("1\n3", "2\n5 5", "3\n-1 -1 -2", "2\n0 -20"),
        case=lambda rng, size: _list_case(rng, size, -20, 20 - size),
        answer=_runner_up_answer,
        solution="""
            n = int(input())
            values = sorted(set(map(int, input().split())))
            print(values[-2] if len(values) > 1 else "none")
        """,
        wrong=(
            ("sorted(set(map(int, input().split())))", "sorted(map(int, input().split()))"),
            """
            n = int(input())
            first = second = 0
            for v in map(int, input().split()):
                if v > first:
                    first, second = v, first
                elif first > v > second:
                    second = v
            print(second if second != first else "none")
            """,
        ),
    ),
    Exercise(
        id="pairs_with_sum",
        difficulty="easy",
        task="Count the pairs of positions i < j of a list whose two numbers add up to a target.",
        input_format="The first line holds n (2 to 400) and the target, the second the n numbers. "
        "Numbers and target lie between -60 and 60.",
        output_format="The number of pairs.",
        example="5 6\n3 3 1 5 3",
        edges=("2 0\n0 0", "3 10\n5 1 2", "4 4\n2 2 2 2", "2 1\n4 4"),
        case=_pair_sum_case,
        answer=_pair_sum_answer,
        solution="""
            n, target = map(int, input().split())
            seen = {}
            pairs = 0
            for v in map(int, input().split()):
                pairs += seen.get(target - v, 0)
                seen[v] = seen.get(v, 0) + 1
            print(pairs)
        """,
        wrong=(
            ("seen[v] = seen.get(v, 0) + 1", "seen[v] = 1"),
            """
            n, target = map(int, input().split())
            values = list(map(int, input().split()))
            print(sum(values.count(target - v) for v in values) // 2)
            """,
        ),
    ),
    Exercise(
        id="range_sums",
        difficulty="easy",
        task="Answer many questions about one list: what is the sum of the numbers from position a "
        "to position b, both included? Positions start at 1.",
        input_format="The first line holds n and q (each 1 to 5000), the second the n numbers "
        "(-1000 to 1000). Each of the next q lines holds a and b, 1 <= a <= b <= n.",
        output_format="One sum per line, in the order of the questions.",
        example="4 2\n1 2 3 4\n2 3\n1 4",
        edges=("1 1\n-5\n1 1", "3 3\n1 -1 1\n1 2\n2 2\n3 3"),
        case=_range_sum_case,
        answer=_range_sum_answer,
        solution="""
            import sys

            data = list(map(int, sys.stdin.read().split()))
            n, q = data[:2]
            prefix = [0]
            for v in data[2 : 2 + n]:
                prefix.append(prefix[-1] + v)
            queries = data[2 + n :]
            for a, b in zip(queries[::2], queries[1::2]):
                print(prefix[b] - prefix[a - 1])
        """,
        wrong=(
            ("prefix[a - 1]", "prefix[a]"),
            ("prefix[b] - prefix[a - 1]", "prefix[b - 1] - prefix[a - 1]"),
        ),
    ),
    Exercise(
        id="strict_majority",
        difficulty="easy",
        task="Find the value that fills more than half of the places of a list.",
        input_format="The first line holds n (1 to 400), the second n integers between 0 and 9.",
        output_format="The value, or none if no value does.",
        example="5\n7 3 7 7 9",
        edges=("1\n4", "2\n1 2", "4\n7 7 3 3", "3\n5 5 9", "6\n7 7 7 3 5 9"),
        case=_majority_case,
        answer=_majority_answer,
        solution="""
            n = int(input())
            values = input().split()
            best = max(set(values), key=values.count)
            print(best if 2 * values.count(best) > n else "none")
        """,
        wrong=(
            ("> n else", ">= n else"),
            ('best if 2 * values.count(best) > n else "none"', "best"),
        ),
    ),
    Exercise(
        id="trapped_water",
        difficulty="hard",
        task="A row of columns, each one unit wide, is rained on. How much water stays "
        "between the columns? Water runs off at both ends.",
        input_format="The first line holds n (1 to 300), the second n heights between 0 and 30.",
        output_format="The number of units of water.",
        example="6\n3 0 2 0 4 1",
        edges=("1\n5", "2\n4 4", "3\n2 0 1", "5\n1 2 3 2 1", "5\n4 1 3 1 2"),
        case=lambda rng, size: _list_case(rng, size, 0, 3 * size),
        answer=_water_answer,
        solution="""
            n = int(input())
            h = list(map(int, input().split()))
            left, right = 0, n - 1
            low_left = low_right = total = 0
            while left <= right:
                if low_left <= low_right:
                    low_left = max(low_left, h[left])
                    total += low_left - h[left]
                    left += 1
                else:
                    low_right = max(low_right, h[right])
                    total += low_right - h[right]
                    right -= 1
            print(total)
        """,
        wrong=(
            """
            n = int(input())
            h = list(map(int, input().split()))
            print(sum(max(0, min(h[i - 1], h[i + 1]) - h[i]) for i in range(1, n - 1)))
            """,
            """
            n = int(input())
            h = list(map(int, input().split()))
            print(sum(max(h[: i + 1]) - h[i] for i in range(n)))
            """,
        ),
    ),
)
