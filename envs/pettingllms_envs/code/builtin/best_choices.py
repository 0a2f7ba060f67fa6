"""Built-in problems: the best of many combinations, by smaller cases."""

from __future__ import annotations

import itertools
import operator
import random

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _change_case(rng: random.Random, size: int) -> str:
    coins = rng.sample(range(2, 12 + size), rng.randint(1, 4))
    return rows(f"{rng.randint(0, scaled(size, 12, 300))} {len(coins)}", row(coins))


def _change_answer(text: str) -> str:
    amount, _, *coins = ints(text)
    reached, count = {0}, 0
    while amount not in reached:
        larger = {a + c for a in reached for c in coins if a + c <= amount} - reached
        if not larger:
            return "-1"
        reached, count = reached | larger, count + 1
    return str(count)


def _knapsack_case(rng: random.Random, size: int) -> str:
    count = rng.randint(1, scaled(size, 2, 13))
    items = [f"{rng.randint(1, 12)} {rng.randint(1, 30)}" for _ in range(count)]
    return rows(f"{count} {rng.randint(1, 5 * count)}", *items)


def _knapsack_answer(text: str) -> str:
    count, room, *flat = ints(text)
    items = list(zip(flat[::2], flat[1::2], strict=True))
    loads = (chosen for k in range(count + 1) for chosen in itertools.combinations(items, k))
    return str(max(sum(v for _, v in load) for load in loads if sum(w for w, _ in load) <= room))


def _halves_case(rng: random.Random, size: int) -> str:
    values = [rng.randint(1, 4 + 4 * size) for _ in range(rng.randint(1, 2 + size))]
    return rows(len(values), row(values))


def _halves_answer(text: str) -> str:
    values = ints(text)[1:]
    signs = itertools.product((1, -1), repeat=len(values))
    return str(min(abs(sum(map(operator.mul, sign, values))) for sign in signs))


EXERCISES = (
    Exercise(
        id="coins_any_values",
        difficulty="medium",
        task="Pay an amount exactly with as few coins as possible. The values of the coins are "
        "given; of each there are as many as you like.",
        input_format="The first line holds the amount (0 to 300) and the number of values k (1 "
        "to 4), the second the k different values (2 to 21).",
        output_format="The fewest coins, or -1 if the amount cannot be paid.",
        example="12 3\n9 6 5",
        edges=("0 1\n5", "3 1\n2", "6 3\n4 3 2", "30 3\n2 15 20", "7 2\n5 4"),
        case=_change_case,
        answer=_change_answer,
        solution="""
            amount, k = map(int, input().split())
            values = list(map(int, input().split()))
            INF = 10**9
            fewest = [0] + [INF] * amount
            for a in range(1, amount + 1):
                for v in values:
                    if v <= a:
                        fewest[a] = min(fewest[a], fewest[a - v] + 1)
            print(fewest[amount] if fewest[amount] < INF else -1)
        """,
        wrong=(
            """
            amount, k = map(int, input().split())
            coins = 0
            for v in sorted(map(int, input().split()), reverse=True):
                coins += amount // v
                amount %= v
            print(coins if amount == 0 else -1)
            """,
            ("print(fewest[amount] if fewest[amount] < INF else -1)", "print(fewest[amount])"),
        ),
    ),
    Exercise(
        id="knapsack_value",
        difficulty="medium",
        task="Choose some of n items, each at most once, so that their total weight is at most the "
        "capacity and their total value is as large as possible.",
        input_format="The first line holds n (1 to 13) and the capacity (1 to 65). Each of the "
        "next n lines holds weight (1 to 12) and value (1 to 30) of an item.",
        output_format="The largest total value (0 if nothing fits).",
        example="3 5\n4 9\n3 6\n2 5",
        edges=("1 1\n2 5", "2 4\n2 3\n2 3", "3 10\n6 13\n5 10\n5 10", "1 9\n3 4"),
        case=_knapsack_case,
        answer=_knapsack_answer,
        solution="""
            n, capacity = map(int, input().split())
            best = [0] * (capacity + 1)
            for _ in range(n):
                weight, value = map(int, input().split())
                for room in range(capacity, weight - 1, -1):
                    best[room] = max(best[room], best[room - weight] + value)
            print(best[capacity])
        """,
        wrong=(
            ("range(capacity, weight - 1, -1)", "range(weight, capacity + 1)"),
            """
            n, capacity = map(int, input().split())
            items = [tuple(map(int, input().split())) for _ in range(n)]
            total = 0
            for weight, value in sorted(items, key=lambda i: i[1] / i[0], reverse=True):
                if weight <= capacity:
                    capacity -= weight
                    total += value
            print(total)
            """,
        ),
    ),
    Exercise(
        id="fair_halves",
        difficulty="hard",
        task="Split the numbers of a list into two parts (one may be empty) so that the sums of "
        "the parts differ as little as possible.",
        input_format="The first line holds n (1 to 12), the second n integers between 1 and 44.",
        output_format="The smallest possible difference.",
        example="4\n8 7 6 5",
        edges=("1\n9", "2\n3 3", "5\n3 3 2 2 2", "6\n9 8 7 6 5 1", "5\n4 5 6 7 8", "3\n10 1 1"),
        case=_halves_case,
        answer=_halves_answer,
        solution="""
            n = int(input())
            values = list(map(int, input().split()))
            total = sum(values)
            sums = 1
            for v in values:
                sums |= sums << v
            print(min(abs(total - 2 * s) for s in range(total + 1) if sums >> s & 1))
        """,
        wrong=(
            """
            n = int(input())
            a = b = 0
            for v in sorted(map(int, input().split()), reverse=True):
                if a <= b:
                    a += v
                else:
                    b += v
            print(abs(a - b))
            """,
            """
            n = int(input())
            print(sum(map(int, input().split())) % 2)
            """,
        ),
    ),
)
