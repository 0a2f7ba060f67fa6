"""Built-in problems: best or number of ways by smaller cases."""

from __future__ import annotations

import functools
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
    return "".join(
        rng.choice("abcd"[: 2 + size % 3]) for _ in range(rng.randint(1, scaled(size, 3, 60)))
    )


def _edit_answer(text: str) -> str:
    first, second = text.split()

    @functools.cache
    def cost(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        swap = cost(i - 1, j - 1) + (first[i - 1] != second[j - 1])
        return min(swap, 1 + cost(i - 1, j), 1 + cost(i, j - 1))

    return str(cost(len(first), len(second)))


def _grid_case(rng: random.Random, size: int) -> str:
    height, width = rng.randint(1, 1 + size), rng.randint(1, 1 + size)
    lines = [
        "".join("#" if rng.random() < 0.2 else "." for _ in range(width)) for _ in range(height)
    ]
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


EXERCISES = (
    Exercise(
        id="staircase_ways",
        difficulty="easy",
        task="A staircase has h steps. You climb it by moves of certain heights, each of which "
        "may be used any number of times. In how many ways (orders of moves) can you reach the "
        "top exactly?",
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
        id="longest_rising",
        difficulty="medium",
        task="Strike out numbers of a list so that the remaining ones are strictly increasing "
        "from left to right. How many can remain at most?",
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
        task="One edit inserts, deletes or replaces a single letter. Find the fewest edits that "
        "turn the first word into the second.",
        input_format="Two lines with a word each: 1 to 60 letters a-d.",
        output_format="The number of edits.",
        example="abcd\nbad",
        edges=("a\na", "a\nb", "a\nbbb", "abab\nbaba", "abcabc\ncba"),
        case=lambda rng, size: rows(_word(rng, size), _word(rng, size)),
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
        id="grid_paths",
        difficulty="easy",
        task="Walk through a grid from the top left to the bottom right field, going only right or "
        "down, without entering a blocked field. Count the different walks.",
        input_format="The first line holds height and width (1 to 11). The next lines show the "
        "grid: . is free, # is blocked. The top left field is free.",
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
)
