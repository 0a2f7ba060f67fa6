"""Built-in problems: arrangements and figures in the plane."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

from pettingllms_envs.code.builtin.exercise import Exercise, ints, row, rows, scaled


def _area_case(rng: random.Random, size: int) -> str:
    spread = scaled(size, 4, 300)
    xs = sorted(rng.sample(range(-spread, spread + 1), rng.randint(3, 3 + size // 2 + 1)))
    low = [(x, rng.randint(-spread, 0)) for x in xs]
    high = [(x, rng.randint(1, spread)) for x in reversed(xs[1:-1])]
    corners = low + high
    if rng.random() < 0.5:
        corners.reverse()
    return rows(len(corners), *(row(corner) for corner in corners))


def _area_answer(text: str) -> str:
    values = ints(text)[1:]
    corners = list(zip(values[::2], values[1::2], strict=True))
    first, *others = corners
    pairs = itertools.pairwise(others)
    doubled = sum(
        (a[0] - first[0]) * (b[1] - first[1]) - (b[0] - first[0]) * (a[1] - first[1])
        for a, b in pairs
    )
    return f"{abs(Fraction(doubled, 2)).__float__():.1f}"


def _overlap_case(rng: random.Random, size: int) -> str:
    def rectangle() -> str:
        x, y = rng.randint(-size, 2 * size), rng.randint(-size, 2 * size)
        return f"{x} {y} {x + rng.randint(1, 3 * size)} {y + rng.randint(1, 3 * size)}"

    return rows(rectangle(), rectangle())


def _overlap_answer(text: str) -> str:
    a, b = ints(text)[:4], ints(text)[4:]

    def fields(r: list[int]) -> set[tuple[int, int]]:
        return {(x, y) for x in range(r[0], r[2]) for y in range(r[1], r[3])}

    return f"{len(fields(a) & fields(b))} {len(fields(a) | fields(b))}"


def _lattice_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, scaled(size, 3, 40))
    points = {(rng.randint(0, 1 + size), rng.randint(0, 1 + size)) for _ in range(n)}
    return rows(len(points), *(row(point) for point in sorted(points)))


def _lattice_answer(text: str) -> str:
    values = ints(text)[1:]
    points = list(zip(values[::2], values[1::2], strict=True))
    best = min(2, len(points))
    for (ax, ay), (bx, by) in itertools.combinations(points, 2):
        on_line = sum((bx - ax) * (y - ay) == (by - ay) * (x - ax) for x, y in points)
        best = max(best, on_line)
    return str(best)


def _permutation_case(rng: random.Random, size: int) -> str:
    n = rng.randint(1, min(7, 1 + size))
    return rows(f"{n} {rng.randint(1, math.factorial(n))}")


def _permutation_answer(text: str) -> str:
    n, k = ints(text)
    orders = itertools.permutations(range(1, n + 1))
    return row(next(itertools.islice(orders, k - 1, None)))


def _choose_case(rng: random.Random, size: int) -> str:
    n = rng.randint(0, scaled(size, 5, 2000))
    return rows(f"{n} {rng.randint(0, n + 1)}")


def _dice_case(rng: random.Random, size: int) -> str:
    dice = rng.randint(1, 1 + size // 2)
    return rows(f"{dice} {rng.randint(max(0, dice - 1), 6 * dice + 1)}")


def _dice_answer(text: str) -> str:
    dice, total = ints(text)
    return str(sum(sum(roll) == total for roll in itertools.product(range(1, 7), repeat=dice)))


EXERCISES = (
    Exercise(
        id="polygon_area",
        difficulty="medium",
        task="Find the area of a polygon whose sides do not cross.",
        input_format="The first line holds the number of corners (3 to 14). The next lines hold "
        "the integer coordinates of the corners (-300 to 300) in order around the polygon, in "
        "either direction.",
        output_format="The area with one decimal.",
        example="3\n0 0\n4 0\n0 3",
        edges=("3\n0 0\n0 1\n1 0", "4\n0 0\n0 2\n2 2\n2 0", "4\n0 0\n4 0\n1 1\n0 4"),
        case=_area_case,
        answer=_area_answer,
        solution="""
            n = int(input())
            p = [tuple(map(int, input().split())) for _ in range(n)]
            doubled = 0
            for i in range(n):
                doubled += p[i - 1][0] * p[i][1] - p[i][0] * p[i - 1][1]
            print(f"{abs(doubled) / 2:.1f}")
        """,
        wrong=(
            ("abs(doubled) / 2", "doubled / 2"),
            ("for i in range(n):", "for i in range(1, n):"),
        ),
    ),
    Exercise(
        id="rectangle_overlap",
        difficulty="easy",
        task="Two rectangles have sides parallel to the axes. Find the area they share and the "
        "area covered by at least one of them.",
        input_format="Two lines, each with the integers x1 y1 x2 y2 (-10 to 50) of two opposite "
        "corners, x1 < x2 and y1 < y2.",
        output_format="Two integers on one line: shared area and covered area.",
        example="0 0 4 3\n2 1 6 5",
        edges=(
            "0 0 1 1\n5 5 6 6",
            "0 0 2 2\n2 0 4 2",
            "0 0 9 9\n1 1 2 2",
            "0 3 1 4\n2 0 3 1",
            "-2 -2 1 1\n-1 -1 3 3",
        ),
        case=_overlap_case,
        answer=_overlap_answer,
        solution="""
            a = list(map(int, input().split()))
            b = list(map(int, input().split()))
            width = min(a[2], b[2]) - max(a[0], b[0])
            height = min(a[3], b[3]) - max(a[1], b[1])
            shared = max(0, width) * max(0, height)
            total = sum((r[2] - r[0]) * (r[3] - r[1]) for r in (a, b))
            print(shared, total - shared)
        """,
        wrong=(
            ("max(0, width) * max(0, height)", "max(0, width * height)"),
            ("print(shared, total - shared)", "print(shared, total)"),
        ),
    ),
    Exercise(
        id="points_on_a_line",
        difficulty="hard",
        task="How many of the given points lie on one straight line at most?",
        input_format="The first line holds n (1 to 40). The next lines hold the integer "
        "coordinates (0 to 11) of n different points.",
        output_format="The largest number of points on a line.",
        example="4\n0 0\n1 1\n2 2\n0 3",
        edges=(
            "1\n0 0",
            "2\n0 0\n5 1",
            "3\n2 0\n2 5\n2 9",
            "4\n0 0\n0 1\n1 0\n1 1",
            "3\n0 2\n1 1\n2 0",
            "4\n0 0\n0 2\n1 1\n2 2",
        ),
        case=_lattice_case,
        answer=_lattice_answer,
        solution="""
            from math import gcd

            n = int(input())
            points = [tuple(map(int, input().split())) for _ in range(n)]
            best = 1
            for i, (x, y) in enumerate(points):
                slopes = {}
                for a, b in points[i + 1 :]:
                    dx, dy = a - x, b - y
                    g = gcd(dx, dy)
                    if dx < 0 or dx == 0 and dy < 0:
                        g = -g
                    key = (dx // g, dy // g)
                    slopes[key] = slopes.get(key, 1) + 1
                    best = max(best, slopes[key])
            print(best)
        """,
        wrong=(
            ("key = (dx // g, dy // g)", "key = (abs(dx // g), abs(dy // g))"),
            ("key = (dx // g, dy // g)", "key = (dx, dy)"),
        ),
    ),
    Exercise(
        id="kth_arrangement",
        difficulty="medium",
        task="All arrangements of the numbers 1 to n are listed in ascending order, comparing "
        "the first number, then the second, and so on. Find the k-th in the list; the first is "
        "number 1.",
        input_format="Two integers n (1 to 7) and k (1 to n!) on one line.",
        output_format="The arrangement on one line.",
        example="3 4",
        edges=("1 1", "2 1", "2 2", "4 24", "7 5040", "5 25"),
        case=_permutation_case,
        answer=_permutation_answer,
        solution="""
            from math import factorial

            n, k = map(int, input().split())
            k -= 1
            left = list(range(1, n + 1))
            out = []
            while left:
                index, k = divmod(k, factorial(len(left) - 1))
                out.append(left.pop(index))
            print(*out)
        """,
        wrong=(
            ("k -= 1", "k %= factorial(n)"),
            ("out.append(left.pop(index))", "out.append(left.pop(-1 - index))"),
        ),
    ),
    Exercise(
        id="choose_modulo",
        difficulty="hard",
        task="In how many ways can k of n people be chosen? Give the remainder of the number "
        "when divided by 1000000007.",
        input_format="Two integers n (0 to 2000) and k (0 to n + 1) on one line.",
        output_format="The remainder.",
        example="5 2",
        edges=("0 0", "0 1", "1 1", "7 7", "40 20", "2000 1000", "3 4"),
        case=_choose_case,
        answer=lambda text: str(math.comb(*ints(text)) % (10**9 + 7)),
        solution="""
            n, k = map(int, input().split())
            M = 10**9 + 7
            line = [1] + [0] * k
            for _ in range(n):
                for j in range(k, 0, -1):
                    line[j] = (line[j] + line[j - 1]) % M
            print(line[k])
        """,
        wrong=(
            ("range(k, 0, -1)", "range(1, k + 1)"),
            """
            n, k = map(int, input().split())
            M = 10**9 + 7
            top = bottom = 1
            for i in range(k):
                top = top * (n - i) % M
                bottom = bottom * (i + 1) % M
            print(top // bottom)
            """,
        ),
        time_limit_s=4.0,
    ),
    Exercise(
        id="dice_totals",
        difficulty="easy",
        task="Several six-sided dice of different colours are thrown. In how many ways can their "
        "total be s?",
        input_format="Two integers on one line: the number of dice (1 to 6) and s (0 to 37).",
        output_format="The number of ways.",
        example="2 5",
        edges=("1 0", "1 6", "1 7", "2 7", "3 10", "6 21", "2 1"),
        case=_dice_case,
        answer=_dice_answer,
        solution="""
            dice, total = map(int, input().split())
            ways = [1] + [0] * total
            for _ in range(dice):
                ways = [sum(ways[max(0, t - 6) : t]) for t in range(total + 1)]
            print(ways[total])
        """,
        wrong=(
            ("max(0, t - 6) : t]", "max(0, t - 6) : t + 1]"),
            ("max(0, t - 6) : t]", "max(0, t - 5) : t]"),
        ),
    ),
)
