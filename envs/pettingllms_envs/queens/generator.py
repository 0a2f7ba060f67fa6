"""Levels by chance, each with the minimum number of moves, and nothing outside its split."""

from __future__ import annotations

import random
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.splits import check_split, split_of
from pettingllms_envs.queens.rules import (
    MAX_SIZE,
    MIN_SIZE,
    Level,
    canonical_form,
    distance,
    solutions,
)

MIN_MOVES = 2
"""Default of `min_moves`: shorter levels are solved by luck."""
ATTEMPTS = 2_000


class Request(NamedTuple):
    """The properties of the levels to generate."""

    size: int
    fixed: int
    min_moves: int
    max_moves: int
    split: str | None

    def checked(self) -> Request:
        """Return the request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If the values contradict one another.
        """
        size = check_whole("size", self.size, MIN_SIZE, MAX_SIZE)
        plain = Request(
            size,
            check_whole("fixed", self.fixed, 1, size - 1),
            check_whole("min_moves", self.min_moves, 1),
            check_whole("max_moves", self.max_moves, 1),
            self.split,
        )
        check_split(self.split)
        if plain.min_moves > min(plain.max_moves, size - plain.fixed):
            raise UnreachableRequest(
                f"no level of size={size} with fixed={plain.fixed} needs at least "
                f"min_moves={plain.min_moves} and at most max_moves={plain.max_moves} moves; there "
                f"are {size - plain.fixed} queens to move, and max_moves is max_turns * "
                "moves_per_turn unless it is given"
            )
        return plain


def generate(rng: random.Random, request: Request) -> Level:
    """Return a random level with the requested properties.

    Some queens of a random solution are fixed, so that there is a solution; the others are put
    into random columns. The certificate is the enumeration of all solutions.

    Args:
        rng: The only source of chance.
        request: A checked request.

    Raises:
        UnreachableRequest: If 2,000 boards held no such level.
    """
    size = request.size
    for _ in range(ATTEMPTS):
        solution = rng.choice(solutions(size))
        kept = set(rng.sample(range(size), request.fixed))
        start = tuple(solution[row] if row in kept else rng.randrange(size) for row in range(size))
        level = Level(start, tuple(row in kept for row in range(size)), 0)
        level = level._replace(shortest=distance(level, start))
        if not request.min_moves <= level.shortest <= request.max_moves:
            continue
        if request.split is None or split_of(canonical_form(level)) == request.split:
            return level
    raise UnreachableRequest(
        f"{ATTEMPTS} random boards held no level with size={size}, fixed={request.fixed}, "
        f"min_moves={request.min_moves}, max_moves={request.max_moves}, split={request.split!r}; "
        "lower min_moves, raise max_moves, or fix other numbers of queens"
    )
