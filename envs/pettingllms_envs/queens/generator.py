"""Levels by chance, each with the minimum number of moves, and nothing outside its split."""

from __future__ import annotations

import random
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.queens.rules import (
    KINDS,
    MAX_GOALS,
    MAX_SIZE,
    MIN_SIZE,
    Columns,
    Kind,
    Level,
    attacked,
    canonical_form,
    distance,
    goals,
    reaches,
    solutions,
)

MIN_MOVES = 2
"""Default of `min_moves`: shorter levels are solved by luck."""
ATTEMPTS = 2_000
STARTS = 30
MAX_LISTED = 10
"""Largest board of queens whose solutions are all listed, to draw one of them."""
LEAPS = ((1, 2), (1, 3), (2, 3), (1, 4), (2, 5))


class Request(NamedTuple):
    """The properties of the levels to generate."""

    size: int
    fixed: int
    min_moves: int
    max_moves: int
    split: str | None
    pieces: int = 0

    def checked(self) -> Request:
        """The request, in Python's numbers.

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
            check_whole("pieces", self.pieces, 0, min(size, len(KINDS))),
        )
        check_split(self.split)
        if plain.min_moves > min(plain.max_moves, size - plain.fixed):
            raise UnreachableRequest(
                f"no level of size={size} with fixed={plain.fixed} needs at least "
                f"min_moves={plain.min_moves} and at most max_moves={plain.max_moves} moves; there "
                f"are {size - plain.fixed} pieces to move, and max_moves is max_turns * "
                "moves_per_turn unless it is given"
            )
        return plain


def generate(rng: random.Random, request: Request) -> Level:
    """A random level with the requested properties.

    Some pieces of a random solution are fixed, so that there is a solution; the others are put
    into random columns. The certificate is the enumeration of all solutions.

    Raises:
        UnreachableRequest: If 2,000 boards held no such level.
    """
    size = request.size
    for _ in range(ATTEMPTS):
        board = _solved(rng, request)
        if board is None:
            continue
        kept = set(rng.sample(range(size), request.fixed))
        board = board._replace(fixed=tuple(row in kept for row in range(size)))
        # What is not listed whole gives no minimum: such a board could not be certified.
        if len(goals(board)) > MAX_GOALS:
            continue
        # Drawn pieces take long to place: their boards are tried with several starts.
        for _ in range(STARTS if request.pieces else 1):
            columns = (
                board.start[row] if row in kept else rng.randrange(size) for row in range(size)
            )
            start = tuple(columns)
            level = board._replace(start=start, shortest=distance(board, start))
            if not request.min_moves <= level.shortest <= request.max_moves:
                continue
            # Splits go by content: the same board never comes with another seed in another split.
            if request.split is None or split_of(canonical_form(level)) == request.split:
                return level
    raise UnreachableRequest(
        f"{ATTEMPTS} random boards held no level with size={size}, fixed={request.fixed}, "
        f"pieces={request.pieces}, min_moves={request.min_moves}, max_moves={request.max_moves}, "
        f"split={request.split!r}; lower min_moves, raise max_moves, or fix other numbers of pieces"
    )


def _solved(rng: random.Random, request: Request) -> Level | None:
    """A board on which no piece attacks another; None if chance did not find one soon."""
    size = request.size
    none = (False,) * size
    # Few enough solutions to choose among all of them, each as likely as the others.
    if not request.pieces and size <= MAX_LISTED:
        return Level(rng.choice(solutions(size)), none, 0)
    kinds = tuple(_kind(rng) for _ in range(request.pieces))
    letters = KINDS[: request.pieces]
    others = rng.choices(letters + "Q", k=size - len(letters))
    level = Level((0,) * size, none, 0, kinds, "".join(rng.sample([*letters, *others], size)))
    # An empty text stands for queens alone, so that equal boards are equal levels.
    if not kinds:
        level = level._replace(pieces="")
    columns = _random_solution(rng, level)
    # Two letters that attack alike would be one kind under two names.
    alike = len(set(reaches(level))) < len(kinds) + ("Q" in level.pieces)
    return None if columns is None or alike else level._replace(start=columns)


def _kind(rng: random.Random) -> Kind:
    """A kind of piece: a line or two, and a leap that no queen makes."""
    lines = rng.sample([(0, 1), (1, 1)], rng.choice((1, 1, 2)))
    leap = rng.choice(LEAPS)
    # 0 is a queen's unlimited reach; the others are new to a program that knows queens.
    reached = ((*step, rng.choice((0, 2, 3, 4))) for step in lines)
    return (*reached, (*leap, rng.choice((1, 1, 2, 0))))


def _random_solution(rng: random.Random, level: Level) -> Columns | None:
    """A random placement without attacks; None where chance ends in a blind alley."""
    bits, size = attacked(level), len(level.start)
    # The row with the fewest free columns first: blind alleys show before much is placed.
    columns, allowed = [-1] * size, [(1 << size) - 1] * size
    while (row := min(_open(columns), key=lambda one: allowed[one].bit_count(), default=-1)) >= 0:
        free = [col for col in range(size) if allowed[row] >> col & 1]
        if not free:
            return None
        columns[row] = rng.choice(free)
        allowed = [a & ~b for a, b in zip(allowed, bits[row][columns[row]], strict=True)]
    return tuple(columns)


def _open(columns: list[int]) -> list[int]:
    return [row for row, col in enumerate(columns) if col < 0]
