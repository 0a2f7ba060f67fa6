"""The rules: queens, one per row, moved within their rows; all solutions; the distance to one."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias

Columns: TypeAlias = tuple[int, ...]
"""Column of the queen of each row, from 0."""

MIN_SIZE, MAX_SIZE = 4, 10


class Level(NamedTuple):
    """A board to repair."""

    start: Columns
    fixed: tuple[bool, ...]
    """Whether the queen of a row must stay where it is."""
    shortest: int
    """Minimum number of queens that have to be moved."""


class Move(NamedTuple):
    """The queen of a row goes to a column."""

    row: int
    col: int


@lru_cache(maxsize=16)
def solutions(size: int) -> tuple[Columns, ...]:
    """Return all placements of `size` queens that do not attack each other, in order."""
    found: list[Columns] = [()]
    for row in range(size):
        found = [
            (*columns, col)
            for columns in found
            for col in range(size)
            if all(col != c and abs(col - c) != row - r for r, c in enumerate(columns))
        ]
    return tuple(found)


@lru_cache(maxsize=4096)
def goals(level: Level) -> tuple[Columns, ...]:
    """Return the solutions that leave the fixed queens where they are."""
    fixed = [(row, level.start[row]) for row, is_fixed in enumerate(level.fixed) if is_fixed]
    return tuple(
        one for one in solutions(len(level.start)) if all(one[row] == col for row, col in fixed)
    )


def wrong_rows(columns: Columns, goal: Columns) -> list[int]:
    """Return the rows whose queens are not where a solution has them."""
    return [row for row, col in enumerate(columns) if goal[row] != col]


@lru_cache(maxsize=16384)
def nearest_goal(level: Level, columns: Columns) -> Columns:
    """Return the solution that needs the fewest moves; the first of several.

    A queen moves to any column of its row in one move, and no other queen is in its way. The
    minimum number of moves to a solution is therefore the number of rows in which it differs, and
    the minimum over all solutions is exact.
    """
    return min(goals(level), key=lambda goal: len(wrong_rows(columns, goal)))


@lru_cache(maxsize=16384)
def distance(level: Level, columns: Columns) -> int:
    """Return the minimum number of moves to a solution."""
    return len(wrong_rows(columns, nearest_goal(level, columns)))


def is_solved(level: Level, columns: Columns) -> bool:
    """Return whether no two queens attack each other; fixed queens never leave their places."""
    return not distance(level, columns)


def after(level: Level, columns: Columns, move: Move) -> Columns | None:
    """Return the board after a move; None if the queen is fixed, or that is no other place."""
    row, col = move
    if not (0 <= row < len(columns) and 0 <= col < len(columns)):
        return None
    if level.fixed[row] or columns[row] == col:
        return None
    return (*columns[:row], col, *columns[row + 1 :])


def legal_moves(level: Level, columns: Columns) -> list[Move]:
    """Return all legal moves, row by row."""
    size = len(columns)
    every = (Move(row, col) for row in range(size) for col in range(size))
    return [move for move in every if after(level, columns, move) is not None]


@lru_cache(maxsize=16384)
def attacks(columns: Columns) -> int:
    """Return the number of pairs of queens that attack each other."""
    pairs, size = 0, len(columns)
    # Queens met so far by column and by both diagonals: each queen attacks those on its lines.
    on_column, falling, rising = [0] * size, [0] * 2 * size, [0] * 2 * size
    for row, col in enumerate(columns):
        pairs += on_column[col] + falling[row - col] + rising[row + col]
        on_column[col] += 1
        falling[row - col] += 1
        rising[row + col] += 1
    return pairs


def canonical_form(level: Level) -> bytes:
    """Return what identifies the content of a level, equal for its mirror images.

    Queens move along rows, so the symmetries of the rules are the reflections in both directions
    and their product, not the quarter turns.
    """
    last = len(level.start) - 1
    rows = tuple(zip(level.start, level.fixed, strict=True))
    mirrored = tuple((last - col, is_fixed) for col, is_fixed in rows)
    smallest = min(rows, mirrored, rows[::-1], mirrored[::-1])
    return " ".join(f"{col}{'!' * is_fixed}" for col, is_fixed in smallest).encode()
