"""Sudoku as pure functions over grids that know which values are used and how many are right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from pettingllms_envs.planning.env import Trial
from pettingllms_envs.reward import PROGRESS
from pettingllms_envs.sudoku.drawn import Rules, boxes_of
from pettingllms_envs.sudoku.generator import Puzzle

Fill = tuple[int, int, int]
"""(row, column, value), rows and columns counted from 0; value 0 clears the cell."""

Refusal = tuple[Fill, str]
"""A fill that was refused, and why."""


_MAX_REFUSALS_SHOWN = 8

TAKEN = "row, column or box"
TAKEN_DRAWN = "row, column, box, cage or diagonal"
"""Where no value may stand twice, in puzzles without and with drawn rules."""


class FillAnswer(NamedTuple):
    """What an agent asks to write into the grid."""

    fills: tuple[Fill, ...]
    """The fills, in the order in which they are written."""
    is_grid: bool = False
    """Whether the fills are a whole grid, which replaces everything but the clues."""


class Grid(NamedTuple):
    """A partly filled grid of a puzzle."""

    cells: bytes
    """[N] the values, row by row; 0 for an empty cell."""
    used: int
    """Bit `unit * n + value - 1` for every value in a unit (rows, columns, boxes, drawn ones)."""
    num_empty: int
    """Cells without a value."""
    num_right: int
    """Filled cells that agree with the solution, clues not counted."""
    num_wrong: int
    """Filled cells that disagree with the solution: with any of them it cannot be completed."""

    @property
    def text(self) -> str:
        """The values as rows of numbers, right-aligned; 0 for an empty cell."""
        return text_of(self.cells)


class Layout(NamedTuple):
    """What all grids of one size and the same drawn rules share."""

    units: tuple[tuple[int, ...], ...]
    """[N][n + 1] cell, value -> the bits of the value in the units of the cell (0 for 0)."""
    blank: bytes
    """The text of a grid with spaces for values."""
    digits: tuple[bytes, ...]
    """[width] per place of a number: a table for `bytes.translate` from values to digits."""


@lru_cache(maxsize=64)
def layout(size: int, rules: Rules | None = None) -> Layout:
    """What all grids of a size and drawn rules share."""
    boxes, width = boxes_of(size, rules), len(str(size))
    extra = rules.extra_units(size) if rules else []
    units = [
        tuple(
            sum(1 << unit * size + value - 1 for unit in _units(size, cell, boxes[cell], extra))
            if value
            else 0
            for value in range(size + 1)
        )
        for cell in range(size * size)
    ]
    # `bytes.translate` needs 256 entries; values above n never occur.
    numbers = [str(value).rjust(width) for value in range(size + 1)] + [" " * width] * (255 - size)
    blank = "\n".join(" ".join([" " * width] * size) for _ in range(size))
    digits = tuple("".join(number[at] for number in numbers).encode() for at in range(width))
    return Layout(tuple(units), blank.encode(), digits)


def _units(size: int, cell: int, box: int, extra: list[tuple[int, ...]]) -> list[int]:
    drawn = [3 * size + at for at, cells in enumerate(extra) if cell in cells]
    return [cell // size, size + cell % size, 2 * size + box, *drawn]


@lru_cache(maxsize=512)
def text_of(cells: bytes) -> str:
    """The values of a grid as rows of numbers, right-aligned; 0 for an empty cell."""
    _, blank, digits = layout(isqrt(len(cells)))
    text, step = bytearray(blank), len(digits) + 1
    for place, table in enumerate(digits):  # every number is `step` characters behind the last
        text[place::step] = cells.translate(table)
    return text.decode()


@lru_cache(maxsize=512)
def start(puzzle: Puzzle) -> Grid:
    """The grid that holds the clues only."""
    units, used = layout(puzzle.size, puzzle.rules).units, 0
    for bits, value in zip(units, puzzle.clues, strict=True):
        used |= bits[value]
    return Grid(puzzle.clues, used, puzzle.clues.count(0), 0, 0)


def write(puzzle: Puzzle, grid: Grid, fills: Iterable[Fill]) -> tuple[Grid, list[Refusal]]:
    """Write values into cells, or clear them, in order.

    Args:
        puzzle: The puzzle.
        grid: The grid.
        fills: Any integers.

    Returns:
        The new grid, and the fills that were refused: no such cell or value, a clue, or a value
        that is already in the row, column or box, or in a drawn cage or diagonal. Nothing else is
        refused: a value that merely differs from the solution is written.
    """
    size, clues, solution, _, rules = puzzle
    units, taken = layout(size, rules).units, TAKEN_DRAWN if rules else TAKEN
    before, used, num_empty, num_right, num_wrong = grid
    cells = bytearray(before)
    refused: list[Refusal] = []
    for fill in fills:
        row, col, value = fill
        if not (0 <= row < size and 0 <= col < size and 0 <= value <= size):
            refused.append((fill, "outside the grid"))
            continue
        cell = row * size + col
        if clues[cell]:
            refused.append((fill, "a clue"))
            continue
        # `bits[v]` has value v's bit in the row, the column, the box of this cell and in
        # all that is drawn: one AND tests all of them.
        old, right, bits = cells[cell], solution[cell], units[cell]
        if old == value:
            continue
        # The old value leaves its units first, so replacing it cannot conflict with itself.
        if (used ^ bits[old]) & bits[value]:
            refused.append((fill, f"{value} already in its {taken}"))
            continue
        used ^= bits[old] | bits[value]
        cells[cell] = value
        if value:
            num_empty -= 1
            if value == right:
                num_right += 1
            else:
                num_wrong += 1
        if old:
            num_empty += 1
            if old == right:
                num_right -= 1
            else:
                num_wrong -= 1
    return Grid(bytes(cells), used, num_empty, num_right, num_wrong), refused


def is_solved(grid: Grid) -> bool:
    """Whether the grid is complete and valid, with all clues in place."""
    return not grid.num_empty and not grid.num_wrong


def candidates(puzzle: Puzzle, grid: Grid, cell: int) -> list[int]:
    """The values that are in no unit of an empty cell; an empty list for a filled one."""
    if grid.cells[cell]:
        return []
    bits = layout(puzzle.size, puzzle.rules).units[cell]
    return [value for value in range(1, puzzle.size + 1) if not grid.used & bits[value]]


def potential(grid: Grid) -> float:
    """0.1 * (right fills - wrong fills) / empty cells of the puzzle, in [-0.1, 0.1].

    It is 0 at the start and 0.1 when solved. Differences of it are the team's reward, so that every
    closed loop adds up to 0 and a wrong grid earns less than an empty one. Wrong fills count as
    much as right ones, or guessing would pay.

    Source: potential-based shaping (Ng, Harada, Russell 1999), without discounting.
    """
    _, _, num_empty, num_right, num_wrong = grid
    return PROGRESS * (num_right - num_wrong) / (num_empty + num_right + num_wrong)


# The planner often writes what was proposed, and branches of a group often the same.
@lru_cache(maxsize=1024)
def attempt(puzzle: Puzzle, grid: Grid, answer: FillAnswer, max_moves: int) -> Trial:
    """Write the fills of an answer, in order; a whole grid clears the old fills first.

    Cells of a grid answer that hold clues are no fills. There is no limit of fills but that of the
    text; `Trial.about` has the fills and those that were refused.
    """
    fills, is_grid = answer
    begin = grid
    if is_grid:
        begin, size = start(puzzle), puzzle.size
        fills = tuple(f for f in fills if f[2] != puzzle.clues[f[0] * size + f[1]])
    after, refused = write(puzzle, begin, fills)
    unchanged = ""
    if after.cells == grid.cells:
        unchanged = "the answer had no fills"
        if answer.fills:
            is_refused = len(refused) == len(fills) > 0
            unchanged = "the fills repeated what was there"
            unchanged = "all fills were refused" if is_refused else unchanged
    # By position, which is faster than by name.
    about = (fills, tuple(refused))
    shown = _refusals(refused) if refused else ""
    value, solved = potential(after), is_solved(after)
    return Trial(after, value, solved, fills, (), len(refused), unchanged, shown, False, about)


def _refusals(refused: Sequence[Refusal]) -> str:
    shown = [f"[{row},{col},{value}] ({reason})" for (row, col, value), reason in refused]
    more = len(shown) - _MAX_REFUSALS_SHOWN
    return ", ".join(shown[:_MAX_REFUSALS_SHOWN]) + (f", and {more} more" if more > 0 else "")
