"""Sudoku as pure functions: a grid is its own text, and a fill is one splice.

Everything a fill changes is kept up to date in the value itself (text, used digits, right and wrong
fills), so that no function ever looks at the whole grid.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from pettingllms_envs.sudoku.generator import Puzzle
from pettingllms_envs.sudoku.solver import geometry

Fill = tuple[int, int, int]
"""(row, column, value), rows and columns counted from 1; value 0 clears the cell."""


class Grid(NamedTuple):
    """A partly filled grid of a puzzle."""

    text: str
    """The values as rows of numbers; 0 for an empty cell."""
    used: int
    """Bit `unit * n + value - 1` for every value in a unit (rows, then columns, then boxes)."""
    num_right: int
    """Filled cells that agree with the solution, clues not counted."""
    num_wrong: int
    """Filled cells that do not: with any of them the grid cannot be completed."""


class Layout(NamedTuple):
    """What the texts of all grids of one size share."""

    size: int
    width: int
    """Characters of a value."""
    starts: tuple[int, ...]
    """[N] cell -> where its value starts in the text."""
    symbols: tuple[str, ...]
    """[n + 1] value -> its text."""
    units: tuple[tuple[int, ...], ...]
    """[N][n + 1] cell, value -> the bits of the value in the three units of the cell (0 for 0)."""


@cache
def layout(size: int) -> Layout:
    """Return the layout of the grids of a size."""
    boxes, width = geometry(size).boxes, len(str(size))
    units = [
        tuple(
            sum(1 << unit * size + value - 1 for unit in _units(size, cell, boxes[cell]))
            if value
            else 0
            for value in range(size + 1)
        )
        for cell in range(size * size)
    ]
    return Layout(
        size=size,
        width=width,
        starts=tuple(cell * (width + 1) for cell in range(size * size)),
        symbols=tuple(str(value).rjust(width) for value in range(size + 1)),
        units=tuple(units),
    )


def _units(size: int, cell: int, box: int) -> tuple[int, int, int]:
    return cell // size, size + cell % size, 2 * size + box


def text_of(size: int, cells: bytes) -> str:
    """Return the digits of a grid as rows of numbers, right-aligned; 0 for an empty cell."""
    symbols = layout(size).symbols
    rows = (cells[start : start + size] for start in range(0, size * size, size))
    return "\n".join(" ".join(symbols[value] for value in row) for row in rows)


def start(puzzle: Puzzle) -> Grid:
    """Return the grid that holds the clues only."""
    units = layout(puzzle.size).units
    used = 0
    for cell, value in enumerate(puzzle.clues):
        used |= units[cell][value]
    return Grid(text_of(puzzle.size, puzzle.clues), used, 0, 0)


def value_at(puzzle: Puzzle, grid: Grid, cell: int) -> int:
    """Return the value in a cell, 0 if it is empty."""
    board = layout(puzzle.size)
    begin = board.starts[cell]
    return int(grid.text[begin : begin + board.width])


def cells_of(puzzle: Puzzle, grid: Grid) -> bytes:
    """Return the [N] values of a grid, row by row."""
    return bytes(map(int, grid.text.split()))


def fill(puzzle: Puzzle, grid: Grid, row: int, col: int, value: int) -> tuple[Grid, str]:
    """Write a value into a cell, or clear it.

    Args:
        puzzle: The puzzle.
        grid: The grid.
        row: 1..n.
        col: 1..n.
        value: 1..n, or 0 to clear the cell.

    Returns:
        The new grid and an empty text; or the same grid and the reason why the fill is refused: no
        such cell or value, a clue, or a value that already stands in the row, column or box.
        Nothing else is refused: a value that merely differs from the solution is written.
    """
    size = puzzle.size
    if not (0 < row <= size and 0 < col <= size and 0 <= value <= size):
        return grid, "outside the grid"
    cell = (row - 1) * size + col - 1
    if puzzle.clues[cell]:
        return grid, "a clue"
    _, width, starts, symbols, units = layout(size)
    text, used, num_right, num_wrong = grid
    begin = starts[cell]
    old = int(text[begin : begin + width])
    if old == value:
        return grid, ""
    bits = units[cell]
    used ^= bits[old]
    if used & bits[value]:
        return grid, f"{value} already in its row, column or box"
    right = puzzle.solution[cell]
    num_right += (value == right) - (old == right)
    num_wrong += (value != right and value > 0) - (old != right and old > 0)
    text = text[:begin] + symbols[value] + text[begin + width :]
    return Grid(text, used | bits[value], num_right, num_wrong), ""


def is_solved(puzzle: Puzzle, grid: Grid) -> bool:
    """Return whether the grid is complete and valid, with all clues in place."""
    return grid.num_right == puzzle.clues.count(0)


def candidates(puzzle: Puzzle, grid: Grid, cell: int) -> list[int]:
    """Return the values that stand in no unit of an empty cell; an empty list for a filled one."""
    if value_at(puzzle, grid, cell):
        return []
    bits = layout(puzzle.size).units[cell]
    return [value for value in range(1, puzzle.size + 1) if not grid.used & bits[value]]
