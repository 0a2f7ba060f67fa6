"""Built-in problems: best or number of ways by smaller cases."""

from __future__ import annotations

import functools
import itertools
import operator
import random

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _stairs_case(rng: random.Random, size: int) -> str:
    steps = rng.sample(range(1, 9), rng.randint(1, 4))
    return rows(f"{rng.randint(0, scaled(size, 5, 80))} {len(steps)}", row(steps))


def _stairs_answer(text: str) -> str:
    height, _, *steps = ints(text)

    @functools.cache
    def ways(left: int) -> int:
        return 1 if left == 0 else sum(ways(left - step) for step in steps if step <= left)

    return str(ways(height))


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


def _rising_case(rng: random.Random, size: int) -> str:
    values = [rng.randint(1, 5 + 3 * size) for _ in range(rng.randint(1, scaled(size, 4, 150)))]
    return rows(len(values), row(values))


def _rising_answer(text: str) -> str:
    values = ints(text)[1:]
    best: list[int] = []
    for i, value in enumerate(values):
        best.append(1 + max((best[j] for j in range(i) if values[j] < value), default=0))
    return str(max(best))


def _word(rng: random.Random, size: int) -> str:
    return "".join(rng.choice("abcd"[: 2 + size % 3]) for _ in range(rng.randint(1, scaled(size, 3, 60))))


def _words_case(rng: random.Random, size: int) -> str:
    return rows(_word(rng, size), _word(rng, size))


def _edit_answer(text: str) -> str:
    first, second = text.split()

    @functools.cache
    def cost(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        swap = cost(i - 1, j - 1) + (first[i - 1] != second[j - 1])
        return min(swap, 1 + cost(i - 1, j), 1 + cost(i, j - 1))

    return str(cost(len(first), len(second)))


def _knapsack_case(rng: random.Random, size: int) -> str:
    count = rng.randint(1, scaled(size, 2, 13))
    items = [f"{rng.randint(1, 12)} {rng.randint(1, 30)}" for _ in range(count)]
    return rows(f"{count} {rng.randint(1, 5 * count)}", *items)


def _knapsack_answer(text: str) -> str:
    count, room, *flat = ints(text)
    items = list(zip(flat[::2], flat[1::2], strict=True))
    loads = (chosen for k in range(count + 1) for chosen in itertools.combinations(items, k))
    return str(max(sum(v for _, v in load) for load in loads if sum(w for w, _ in load) <= room))


def _grid_case(rng: random.Random, size: int) -> str:
    height, width = rng.randint(1, 1 + size), rng.randint(1, 1 + size)
    lines = ["".join("#" if rng.random() < 0.2 else "." for _ in range(width)) for _ in range(height)]
    lines[0] = "." + lines[0][1:]
    return rows(f"{height} {width}", *lines)


def _grid_answer(text: str) -> str:
    _, *lines = text.split("\n", 1)
    grid = lines[0].split()

    @functools.cache
    def ways(y: int, x: int) -> int:
        if y < 0 or x < 0 or grid[y][x] == "#":
            return 0
        return 1 if y == x == 0 else ways(y - 1, x) + ways(y, x - 1)

    return str(ways(len(grid) - 1, len(grid[0]) - 1))


def _halves_case(rng: random.Random, size: int) -> str:
    values = [rng.randint(1, 4 + 4 * size) for _ in range(rng.randint(1, 2 + size))]
    return rows(len(values), row(values))


def _halves_answer(text: str) -> str:
    values = ints(text)[1:]
    signs = itertools.product((1, -1), repeat=len(values))
    return str(min(abs(sum(map(operator.mul, sign, values))) for sign in signs))


EXERCISES = (
    Exercise(
        id="staircase_ways",
        difficulty="easy",
        task="A staircase has h steps. You climb it by moves of certain heights, each of which may be "
        "used any number of times. In how many ways (orders of moves) can you reach the top exactly?",
        input_format="The first line holds h (0 to 80) and the number of heights k (1 to 4), the "
        "second the k different heights (1 to 8).",
        output_format="The number of ways. For h = 0 it is 1.",
        example="4 2\n1 2",
        edges=("0 1\n3", "5 1\n2", "6 2\n2 3", "1 1\n8", "80 4\n1 2 3 4"),
        case=_stairs_case,
        answer=_stairs_answer,
        solution="""
            h, k = map(int, input().split())
            moves = list(map(int, input().split()))
            ways = [1] + [0] * h
            for height in range(1, h + 1):
                for move in moves:
                    if move <= height:
                        ways[height] += ways[height - move]
            print(ways[h])
        """,
        wrong=(
            ("if move <= height:", "if move < height:"),
            """
            h, k = map(int, input().split())
            moves = list(map(int, input().split()))
            ways = [1] + [0] * h
            for move in moves:
                for height in range(move, h + 1):
                    ways[height] += ways[height - move]
            print(ways[h])
            """,
        ),
    ),
    Exercise(
        id="coins_any_values",
        difficulty="medium",
        task="Pay an amount exactly with as few coins as possible. The values of the coins are given; "
        "of each there are as many as you like.",
        input_format="The first line holds the amount (0 to 300) and the number of values k (1 to 4), "
        "the second the k different values (2 to 21).",
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
        id="longest_rising",
        difficulty="medium",
        task="Strike out numbers of a list so that the remaining ones are strictly increasing from left "
        "to right. How many can remain at most?",
        input_format="The first line holds n (1 to 150), the second n integers between 1 and 40.",
        output_format="The largest number of remaining numbers.",
        example="6\n4 1 3 2 5 5",
        edges=("1\n9", "3\n5 5 5", "4\n4 3 2 1", "5\n1 2 3 4 5", "7\n3 1 4 1 5 2 6"),
        case=_rising_case,
        answer=_rising_answer,
        solution="""
            from bisect import bisect_left

            n = int(input())
            tails = []
            for v in map(int, input().split()):
                place = bisect_left(tails, v)
                tails[place : place + 1] = [v]
            print(len(tails))
        """,
        wrong=(
            """
            from bisect import bisect_right

            n = int(input())
            tails = []
            for v in map(int, input().split()):
                place = bisect_right(tails, v)
                tails[place : place + 1] = [v]
            print(len(tails))
            """,
            """
            n = int(input())
            values = list(map(int, input().split()))
            best = run = 1
            for a, b in zip(values, values[1:]):
                run = run + 1 if b > a else 1
                best = max(best, run)
            print(best)
            """,
        ),
    ),
    Exercise(
        id="edit_distance",
        difficulty="hard",
        task="One edit inserts, deletes or replaces a single letter. Find the fewest edits that turn "
        "the first word into the second.",
        input_format="Two lines with a word each: 1 to 60 letters a-d.",
        output_format="The number of edits.",
        example="abcd\nbad",
        edges=("a\na", "a\nb", "a\nbbb", "abab\nbaba", "abcabc\ncba"),
        case=_words_case,
        answer=_edit_answer,
        solution="""
            a, b = input().strip(), input().strip()
            last = list(range(len(b) + 1))
            for i, x in enumerate(a, 1):
                now = [i]
                for j, y in enumerate(b, 1):
                    now.append(min(last[j] + 1, now[-1] + 1, last[j - 1] + (x != y)))
                last = now
            print(last[-1])
        """,
        wrong=(
            ("(x != y)", "2 * (x != y)"),
            """
            a, b = input().strip(), input().strip()
            print(sum(x != y for x, y in zip(a, b)) + abs(len(a) - len(b)))
            """,
        ),
    ),
    Exercise(
        id="knapsack_value",
        difficulty="medium",
        task="Choose some of n items, each at most once, so that their total weight is at most the "
        "capacity and their total value is as large as possible.",
        input_format="The first line holds n (1 to 13) and the capacity (1 to 65). Each of the next n "
        "lines holds weight (1 to 12) and value (1 to 30) of an item.",
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
        id="grid_paths",
        difficulty="easy",
        task="Walk through a grid from the top left to the bottom right field, going only right or "
        "down, without entering a blocked field. Count the different walks.",
        input_format="The first line holds height and width (1 to 11). The next lines show the grid: "
        ". is free, # is blocked. The top left field is free.",
        output_format="The number of walks (0 if the last field is blocked or out of reach).",
        example="3 3\n...\n.#.\n...",
        edges=("1 1\n.", "2 2\n.#\n#.", "1 4\n....", "2 2\n..\n.#", "3 2\n..\n..\n.."),
        case=_grid_case,
        answer=_grid_answer,
        solution="""
            height, width = map(int, input().split())
            ways = [0] * width
            ways[0] = 1
            for _ in range(height):
                line = input().strip()
                for x in range(width):
                    if line[x] == "#":
                        ways[x] = 0
                    elif x:
                        ways[x] += ways[x - 1]
            print(ways[-1])
        """,
        wrong=(
            ("ways[x] = 0", "pass"),
            """
            from math import comb

            height, width = map(int, input().split())
            print(comb(height + width - 2, height - 1))
            """,
        ),
    ),
    Exercise(
        id="fair_halves",
        difficulty="hard",
        task="Split the numbers of a list into two parts (one may be empty) so that the sums of the "
        "parts differ as little as possible.",
        input_format="The first line holds n (1 to 12), the second n integers between 1 and 44.",
        output_format="The smallest possible difference.",
        example="4\n8 7 6 5",
        edges=("1\n9", "2\n3 3", "5\n4 5 6 7 8", "3\n10 1 1"),
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
