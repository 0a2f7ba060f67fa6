"""Built-in problems: one good choice after another."""

from __future__ import annotations

import itertools
import random

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _spans_case(rng: random.Random, size: int, count: int) -> str:
    starts = [rng.randint(0, scaled(size, 6, 60)) for _ in range(rng.randint(1, count))]
    return rows(len(starts), *(f"{start} {start + rng.randint(1, 2 + size)}" for start in starts))


def _spans(text: str) -> list[tuple[int, int]]:
    values = ints(text)[1:]
    return list(zip(values[::2], values[1::2], strict=True))


def _talks_answer(text: str) -> str:
    talks = sorted(_spans(text))
    best = [0] * len(talks)
    for i in reversed(range(len(talks))):
        later = (best[j] for j in range(i + 1, len(talks)) if talks[j][0] >= talks[i][1])
        best[i] = 1 + max(later, default=0)
    return str(max(best))


def _nails_answer(text: str) -> str:
    planks = _spans(text)
    points = sorted({end for _, end in planks})
    for k in range(1, len(points) + 1):
        for chosen in itertools.combinations(points, k):
            if all(any(a <= p <= b for p in chosen) for a, b in planks):
                return str(k)
    raise AssertionError("one nail per plank always suffices")


def _jumps_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 4, 150))
    return rows(n, row(rng.choice((0, 1, 1, 2, 3, rng.randint(1, 3 + size))) for _ in range(n)))


def _jumps_answer(text: str) -> str:
    n, *reach = ints(text)
    fewest = [0] + [10**9] * (n - 1)
    for i in range(n):
        for j in range(i + 1, min(n, i + reach[i] + 1)):
            fewest[j] = min(fewest[j], fewest[i] + 1)
    return str(fewest[-1]) if fewest[-1] < 10**9 else "-1"


def _merge_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, 1 + size // 2 + size % 3)
    return rows(n, row(rng.randint(1, 3 * size) for _ in range(n)))


def _merge_answer(text: str) -> str:
    def cheapest(piles: tuple[int, ...]) -> int:
        if len(piles) == 1:
            return 0
        best = 10**9
        for i, j in set(itertools.combinations(range(len(piles)), 2)):
            rest = [piles[k] for k in range(len(piles)) if k not in (i, j)]
            joined = piles[i] + piles[j]
            best = min(best, joined + cheapest((*rest, joined)))
        return best

    return str(cheapest(tuple(ints(text)[1:])))


def _sweets_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 3, 120))
    return rows(n, row(rng.randint(1, 3 + size) for _ in range(n)))


def _sweets_answer(text: str) -> str:
    marks = ints(text)[1:]
    sweets = [1] * len(marks)
    for _ in marks:
        for i, mark in enumerate(marks):
            for j in (i - 1, i + 1):
                if 0 <= j < len(marks) and mark > marks[j]:
                    sweets[i] = max(sweets[i], sweets[j] + 1)
    return str(sum(sweets))


def _boats_case(rng: random.Random, size: int) -> str:
    limit = rng.randint(60, 120)
    weights = [rng.randint(20, limit) for _ in range(rng.randint(1, 2 + size))]
    return rows(f"{len(weights)} {limit}", row(weights))


def _boats_answer(text: str) -> str:
    _, limit, *weights = ints(text)

    def fewest(left: tuple[int, ...]) -> int:
        if not left:
            return 0
        first, *others = left
        alone = 1 + fewest(tuple(others))
        pairs = (i for i, w in enumerate(others) if w + first <= limit)
        shared = (1 + fewest((*others[:i], *others[i + 1 :])) for i in pairs)
        return min((alone, *itertools.islice(shared, 3)))

    return str(fewest(tuple(sorted(weights, reverse=True))))


EXERCISES = (
    Exercise(
        id="most_talks",
        difficulty="medium",
        task="You can attend one talk at a time and only whole talks; a talk may start at the "
        "moment another ends. How many talks can you attend at most?",
        input_format="The first line holds n (1 to 100). Each of the next n lines holds the "
        "integers start and end of a talk, 0 <= start < end <= 80.",
        output_format="The largest number of talks.",
        example="3\n1 4\n3 5\n4 6",
        edges=("1\n0 1", "3\n1 10\n2 3\n3 4", "2\n1 2\n1 2", "3\n0 4\n3 6\n5 9"),
        case=lambda rng, size: _spans_case(rng, size, 10 * size),
        answer=_talks_answer,
        solution="""
            n = int(input())
            talks = [tuple(map(int, input().split())) for _ in range(n)]
            free, count = 0, 0
            for start, end in sorted(talks, key=lambda t: t[1]):
                if start >= free:
                    count += 1
                    free = end
            print(count)
        """,
        wrong=(("key=lambda t: t[1]", "key=lambda t: t[0]"), ("start >= free", "start > free")),
    ),
    Exercise(
        id="fewest_nails",
        difficulty="medium",
        task="Planks lie along a line, each from a to b. A nail at a point holds every plank that "
        "covers the point, its ends included. How few nails hold all planks?",
        input_format="The first line holds n (1 to 12). Each of the next n lines holds the "
        "integers a < b of a plank, from 0 to 80.",
        output_format="The fewest nails.",
        example="3\n1 4\n4 6\n7 9",
        edges=("1\n0 1", "2\n0 5\n5 9", "3\n0 9\n1 2\n7 8", "2\n1 2\n3 4"),
        case=lambda rng, size: _spans_case(rng, size, 2 + size),
        answer=_nails_answer,
        solution="""
            n = int(input())
            planks = [tuple(map(int, input().split())) for _ in range(n)]
            nails, last = 0, -1
            for a, b in sorted(planks, key=lambda p: p[1]):
                if a > last:
                    nails += 1
                    last = b
            print(nails)
        """,
        wrong=(("a > last", "a >= last"), ("key=lambda p: p[1]", "key=lambda p: p[0]")),
    ),
    Exercise(
        id="fewest_jumps",
        difficulty="hard",
        task="You stand on the first of n stones. From a stone marked r you can jump forward by "
        "1 to r stones (not at all if r is 0). How few jumps lead to the last stone?",
        input_format="The first line holds n (1 to 150), the second the n marks, from 0 to 13.",
        output_format="The fewest jumps, or -1 if the last stone cannot be reached.",
        example="5\n2 3 1 1 4",
        edges=("1\n0", "2\n0 1", "2\n1 0", "4\n3 2 0 0", "4\n1 1 0 5", "5\n3 1 3 0 0"),
        case=_jumps_case,
        answer=_jumps_answer,
        solution="""
            n = int(input())
            reach = list(map(int, input().split()))
            jumps = edge = farthest = 0
            for i in range(n - 1):
                farthest = max(farthest, i + reach[i])
                if i == edge:
                    if farthest == i:
                        jumps = -1
                        break
                    jumps += 1
                    edge = farthest
            print(jumps)
        """,
        wrong=(
            """
            n = int(input())
            reach = list(map(int, input().split()))
            i = jumps = 0
            while i < n - 1 and reach[i]:
                i += reach[i]
                jumps += 1
            print(jumps if i >= n - 1 else -1)
            """,
            ("range(n - 1)", "range(n)"),
        ),
    ),
    Exercise(
        id="joining_piles",
        difficulty="medium",
        task="Two piles are joined into one at a cost equal to the size of the new pile, again and "
        "again until one pile is left. Find the smallest total cost.",
        input_format="The first line holds n (1 to 8), the second the sizes of the piles (1 to "
        "30).",
        output_format="The smallest total cost.",
        example="3\n4 3 2",
        edges=("1\n9", "2\n1 1", "4\n1 1 1 1", "5\n5 4 3 2 1", "4\n1 10 1 10"),
        case=_merge_case,
        answer=_merge_answer,
        solution="""
            import heapq

            n = int(input())
            piles = list(map(int, input().split()))
            heapq.heapify(piles)
            cost = 0
            while len(piles) > 1:
                joined = heapq.heappop(piles) + heapq.heappop(piles)
                cost += joined
                heapq.heappush(piles, joined)
            print(cost)
        """,
        wrong=(
            """
            n = int(input())
            piles = sorted(map(int, input().split()))
            cost, total = 0, piles[0]
            for p in piles[1:]:
                total += p
                cost += total
            print(cost)
            """,
            ("print(cost)", "print(cost or piles[0])"),
        ),
    ),
    Exercise(
        id="fair_sweets",
        difficulty="hard",
        task="Children in a row get sweets for their marks. Everyone gets at least one sweet, "
        "and a child with a better mark than a direct neighbour gets more sweets than that "
        "neighbour. A higher number is a better mark. How few sweets are enough?",
        input_format="The first line holds n (1 to 120), the second the n marks (1 to 13).",
        output_format="The fewest sweets.",
        example="4\n1 3 2 2",
        edges=("1\n5", "3\n1 2 3", "4\n4 3 2 1", "3\n2 2 2", "5\n1 3 4 3 1", "5\n1 5 3 2 1"),
        case=_sweets_case,
        answer=_sweets_answer,
        solution="""
            n = int(input())
            marks = list(map(int, input().split()))
            sweets = [1] * n
            for i in range(1, n):
                if marks[i] > marks[i - 1]:
                    sweets[i] = sweets[i - 1] + 1
            for i in range(n - 2, -1, -1):
                if marks[i] > marks[i + 1]:
                    sweets[i] = max(sweets[i], sweets[i + 1] + 1)
            print(sum(sweets))
        """,
        wrong=(
            ("max(sweets[i], sweets[i + 1] + 1)", "sweets[i + 1] + 1"),
            ("marks[i] > marks[i - 1]", "marks[i] >= marks[i - 1]"),
        ),
    ),
    Exercise(
        id="rescue_boats",
        difficulty="easy",
        task="A boat carries one or two people with a total weight of at most the limit. How few "
        "boats carry everyone at once?",
        input_format="The first line holds n (1 to 12) and the limit (60 to 120), the second the n "
        "weights, from 20 to the limit.",
        output_format="The fewest boats.",
        example="4 100\n70 50 30 60",
        edges=("1 60\n60", "2 60\n30 30", "2 60\n31 30", "3 100\n50 50 50", "4 90\n20 20 70 70"),
        case=_boats_case,
        answer=_boats_answer,
        solution="""
            n, limit = map(int, input().split())
            weights = sorted(map(int, input().split()))
            light, heavy = 0, n - 1
            boats = 0
            while light <= heavy:
                if light < heavy and weights[light] + weights[heavy] <= limit:
                    light += 1
                heavy -= 1
                boats += 1
            print(boats)
        """,
        wrong=(
            ("<= limit", "< limit"),
            ("sorted(map(int, input().split()))", "list(map(int, input().split()))"),
        ),
    ),
)
