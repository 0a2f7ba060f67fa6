"""Generated questions: lengths, areas and angles."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from pettingllms_envs.math.families.calculation import Calculation
from pettingllms_envs.math.families.family import Family, Params, latex


def _triangle(rng: random.Random, difficulty: int) -> Params:
    bound = 3 + 4 * difficulty
    while True:
        corners = tuple(rng.randint(-bound, bound) for _ in range(6))
        if _doubled_area(corners):
            return corners


def _doubled_area(params: Params) -> int:
    ax, ay, bx, by, cx, cy = params
    return abs((bx - ax) * (cy - ay) - (cx - ax) * (by - ay))


def _triangle_canonical(params: Params) -> Params:
    points = sorted(zip(params[::2], params[1::2], strict=True))
    return tuple(n for point in points for n in point)


def _corners(params: Params) -> str:
    return ", ".join(f"$({x},{y})$" for x, y in zip(params[::2], params[1::2], strict=True))


def _inside_answer(params: Params) -> str:
    corners = list(zip(params[::2], params[1::2], strict=True))
    edges = zip(corners, corners[1:] + corners[:1], strict=True)
    border = sum(math.gcd(bx - ax, by - ay) for (ax, ay), (bx, by) in edges)
    return str((_doubled_area(params) - border + 2) // 2)


def _root(square: int) -> str:
    outside = max(k for k in range(1, math.isqrt(square) + 1) if square % (k * k) == 0)
    inside = square // outside**2
    if inside == 1:
        return str(outside)
    return ("" if outside == 1 else str(outside)) + rf"\sqrt{{{inside}}}"


def _ring(rng: random.Random, difficulty: int) -> Params:
    inner = rng.randint(1, 10 + 20 * difficulty)
    return (inner, rng.randint(inner + 1, 2 * inner + 15))


def _right(rng: random.Random, difficulty: int) -> Params:
    m = rng.randint(2, 5 + 2 * difficulty)
    n = rng.randint(1, m - 1)
    return (m * m - n * n, 2 * m * n, rng.randint(1, 9 + 3 * difficulty))


FAMILIES = (
    Family(
        name="triangle_area",
        sample=_triangle,
        question=lambda p: f"Find the exact area of the triangle with the corners {_corners(p)}.",
        answer=lambda p: latex(Fraction(_doubled_area(p), 2)),
        canonical=_triangle_canonical,
    ),
    Family(
        name="points_inside",
        sample=_triangle,
        question=lambda p: (
            "How many points with integer coordinates lie strictly inside the triangle with the "
            f"corners {_corners(p)}?"
        ),
        answer=_inside_answer,
        canonical=_triangle_canonical,
    ),
    Family(
        name="box_diagonal",
        sample=lambda rng, difficulty: tuple(rng.randint(1, 4 + 4 * difficulty) for _ in range(3)),
        question=lambda p: (
            f"A box measures {p[0]} by {p[1]} by {p[2]}. "
            "How long is the diagonal through its inside? Give the exact value."
        ),
        answer=lambda p: _root(sum(side * side for side in p)),
        canonical=lambda p: tuple(sorted(p)),
    ),
    Family(
        name="ring_area",
        sample=_ring,
        question=lambda p: (
            f"Find the exact area between two circles with the same centre and the radii {p[0]} "
            f"and {p[1]}."
        ),
        answer=lambda p: rf"{p[1] ** 2 - p[0] ** 2}\pi",
    ),
    Family(
        name="polygon_angle",
        sample=lambda rng, difficulty: (rng.randint(5, 150 * difficulty),),
        question=lambda p: (
            f"How many degrees has each interior angle of a regular polygon with {p[0]} sides? "
            "Give the exact value."
        ),
        answer=Calculation(lambda p: 180 * (p[0] - 2) / p[0]),
    ),
    Family(
        name="tree_shadow",
        sample=lambda rng, difficulty: tuple(rng.randint(2, 8 + 9 * difficulty) for _ in range(3)),
        question=lambda p: (
            f"A pole of height {p[0]} casts a shadow of length {p[1]}. At the same time a tree "
            f"casts a shadow of length {p[2]}. How high is the tree? Give the exact value."
        ),
        answer=Calculation(lambda p: p[0] * p[2] / p[1]),
    ),
    Family(
        name="inscribed_circle",
        sample=_right,
        question=lambda p: (
            f"A right triangle has legs of length {p[0] * p[2]} and {p[1] * p[2]}. "
            "Find the radius of the circle that touches all three sides."
        ),
        answer=lambda p: str((p[0] + p[1] - math.isqrt(p[0] ** 2 + p[1] ** 2)) * p[2] // 2),
        canonical=lambda p: tuple(sorted((p[0] * p[2], p[1] * p[2]))),
    ),
)
