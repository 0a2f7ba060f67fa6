"""Sudoku as text: puzzles that people write, answers that models write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pettingllms.errors import LevelFormatError
from pettingllms.parsing import Item, ListReader
from pettingllms.types import ParseError
from pettingllms_envs.grid import SAND, blank_picture
from pettingllms_envs.level_files import read_lines
from pettingllms_envs.sudoku.drawn import boxes_of, neighbours, read_rules, rules_lines, solutions
from pettingllms_envs.sudoku.generator import Puzzle
from pettingllms_envs.sudoku.rules import Fill, FillAnswer, Grid
from pettingllms_envs.sudoku.solver import BOX_SHAPES, singles_suffice

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SYMBOLS = "0123456789ABCDEFG"
"""Symbol of each value in puzzle texts; `.` and `0` are empty cells."""

USUAL_CHARS = 2000
"""Longest answer in the usual form that is remembered with its fills, in characters."""

_FILL = r"\[\d{1,2}, ?\d{1,2}, ?\d{1,2}\]"
_USUAL = re.compile(rf"\[{_FILL}(?>(?:, ?{_FILL})*)\]", re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,4}")
_RULES = re.compile(r"\s(?=boxes|cages|diagonals)")
_TERSE = re.compile(r"[0-9]{3}(?>(?:,[0-9]{3})*)")
MAX_TERSE_SIZE = 9
"""Largest n whose fills can be written as digits: every number has one."""

SHOWN_CHARS = 6000
"""Maximum characters of proposed fills in a prompt: more than 2 n * n fills of any grid need."""


@lru_cache
def reader(size: int) -> ListReader[FillAnswer]:
    """Reads fills or a grid of a puzzle of a size.

    It is a list of `[row, column, value]`, one such triple, several of them without brackets around
    them, a list of n rows of n numbers, or an empty list. Commas may be missing. A text of nothing
    but digits, `123,412`, is fills up to n = 9. More than 2 n * n fills are not an answer.
    """

    def of_usual(text: str) -> FillAnswer | None:
        if size <= MAX_TERSE_SIZE and _TERSE.fullmatch(text):
            text = ",".join(text.replace(",", ""))
        elif not _USUAL.fullmatch(text):
            return None
        numbers = map(int, _DIGITS.findall(text))
        fills = tuple(zip(numbers, numbers, numbers, strict=True))
        return FillAnswer(fills) if len(fills) <= 2 * size * size else None

    def of_items(items: list[Item]) -> FillAnswer | ParseError:
        return answer_of_items(items, size)

    return ListReader(of_items, of_usual, max_usual=USUAL_CHARS)


def answer_of_items(items: list[Item], size: int) -> FillAnswer | ParseError:
    """The fills or the grid that a list is, whatever lists there are around its rows."""
    rows = _rows_of(items)
    if len(rows) > 2 * size * size:
        return ParseError(f"more than {2 * size * size} fills")
    if not all(_NUMBER.fullmatch(word) for row in rows for word in row):
        return ParseError("a list of something other than integers")
    numbers = [list(map(int, row)) for row in rows]
    if all(len(row) == 3 for row in numbers):
        return FillAnswer(tuple((row[0], row[1], row[2]) for row in numbers))
    if len(numbers) == size and all(len(row) == size for row in numbers):
        cells = [(r, c, v) for r, row in enumerate(numbers) for c, v in enumerate(row)]
        return FillAnswer(tuple(cells), is_grid=True)
    return ParseError(f"no list of [row, column, value] and no {size}x{size} grid of numbers")


def _rows_of(items: list[Item]) -> list[list[str]]:
    """The words of every list that holds words, in order."""
    words = [item for item in items if isinstance(item, str)]
    if words and len(words) == len(items):
        return [words]
    rows: list[list[str]] = []
    for item in items:
        rows += [[item]] if isinstance(item, str) else _rows_of(item)
    return rows


def fills_json(fills: Sequence[Fill]) -> str:
    """Fills as the JSON list that prompts ask for."""
    return "[" + ",".join([f"[{row},{col},{value}]" for row, col, value in fills]) + "]"


def fills_terse(fills: Sequence[Fill], size: int) -> str:
    """Fills as digits, `123,412`; as JSON if there are none, or n has two digits."""
    if not fills or size > MAX_TERSE_SIZE:
        return fills_json(fills)
    return ",".join([f"{row}{col}{value}" for row, col, value in fills])


def puzzle_text(puzzle: Puzzle) -> str:
    """The clues as symbols, `.` for an empty cell, and drawn rules behind them: one line."""
    return " ".join([cells_text(puzzle.clues), *rules_lines(puzzle.size, puzzle.rules)])


def cells_text(cells: bytes) -> str:
    """The values of a grid as one line of symbols, `.` for an empty cell."""
    return "".join("." if value == 0 else SYMBOLS[value] for value in cells)


def read_puzzles(text: str) -> list[Puzzle]:
    """Read a file of puzzles: one per line; blank lines and lines that begin with `;` are skipped.

    Raises:
        LevelFormatError: As `read_puzzle`, or if the file has no puzzle.
        UnreachableRequest: If a puzzle is too hard to certify.
    """
    return read_lines(text, read_puzzle, "one puzzle per line", lambda line: line.startswith(";"))


def read_puzzle(text: str, first_line: int = 1) -> Puzzle:
    """Read one puzzle and certify that it has exactly one solution.

    Args:
        text: n * n symbols in one line, or n lines of n symbols: `1`-`9`, then `A`-`G`; `.` or `0`
            for an empty cell. Spaces are not allowed within lines. Drawn rules may follow, as
            `rules_lines` writes them, on the same line or on others.
        first_line: Number of the first line of `text`, for errors.

    Raises:
        LevelFormatError: If a symbol is unknown, the shape or a rule is wrong, clues contradict
            each other, no cell is empty, or there is not exactly one solution; it names line and
            column.
        UnreachableRequest: If the number of solutions could not be decided within bounds.
    """
    at = found.start() if (found := _RULES.search(text)) else len(text)
    lines = [line.rstrip() for line in text[:at].rstrip().split("\n")]
    skipped = next((index for index, line in enumerate(lines) if line), 0)
    lines, first_line = lines[skipped:], first_line + skipped
    size = _size_of(lines, first_line)
    clues = bytearray()
    places: list[tuple[int, int]] = []
    for number, line in enumerate(lines, first_line):
        for column, symbol in enumerate(line, 1):
            value = 0 if symbol == "." else SYMBOLS.find(symbol.upper())
            if not 0 <= value <= size:
                allowed = f"{SYMBOLS[1]}-{SYMBOLS[size]} and . or 0 for an empty cell"
                raise LevelFormatError(f"unknown symbol {symbol!r}", number, column, allowed)
            clues.append(value)
            places.append((number, column))
    rules = read_rules(size, text[at:], places[-1][0])
    _check_clues(size, bytes(clues), places, boxes_of(size, rules))
    grid = bytes(clues)
    ways = solutions(size, grid, rules)
    if len(ways) != 1:
        problem = "the puzzle has no solution" if not ways else "the puzzle has several solutions"
        raise LevelFormatError(problem, first_line, allowed="exactly one solution")
    return Puzzle(size, grid, ways[0], not rules and singles_suffice(size, grid), rules)


def _size_of(lines: list[str], first_line: int) -> int:
    allowed = "n * n symbols in one line, or n lines of n symbols, with n one of 4, 6, 9, 16"
    if len(lines) == 1:
        for size in BOX_SHAPES:
            if len(lines[0]) == size * size:
                return size
        raise LevelFormatError(f"{len(lines[0])} symbols in one line", first_line, 0, allowed)
    size = len(lines)
    if size not in BOX_SHAPES:
        raise LevelFormatError(f"{size} lines", first_line, 0, allowed)
    for number, line in enumerate(lines, first_line):
        if len(line) != size:
            column = min(len(line), size) + 1
            raise LevelFormatError(f"{len(line)} symbols in this line", number, column, allowed)
    return size


def _check_clues(
    size: int, clues: bytes, places: list[tuple[int, int]], boxes: tuple[int, ...]
) -> None:
    if 0 not in clues:
        raise LevelFormatError("no cell is empty", places[0][0], 0, "at least one empty cell")
    for cell, value in enumerate(clues):
        for other in range(cell):
            if value and clues[other] == value:
                unit = _shared_unit(size, boxes, cell, other)
                if unit:
                    problem = f"the clue {SYMBOLS[value]} stands twice in a {unit}"
                    raise LevelFormatError(problem, *places[cell], "clues that agree")


def _shared_unit(size: int, boxes: tuple[int, ...], cell: int, other: int) -> str:
    if cell // size == other // size:
        return "row"
    if cell % size == other % size:
        return "column"
    return "box" if boxes[cell] == boxes[other] else ""


CELL_PIXELS = 32
_LINE, _INK = (190, 190, 186), (40, 44, 52)
_RIGHT, _WRONG = (40, 104, 196), (196, 60, 48)
_CAGE, _INSET, _DASH = (126, 84, 160), 3, 3


def draw_image(puzzle: Puzzle, grid: Grid) -> npt.NDArray[np.uint8]:
    """A picture of the grid: clues dark, fills blue, fills that block the solution red.

    Drawn rules: borders of boxes are thick, cages are dashed and have their sum in a corner, and
    diagonals are sand.

    Returns:
        uint8 of shape [n * 32 + 3, n * 32 + 3, 3].

    Raises:
        MissingDependency: If Pillow is not installed.
    """
    import numpy as np

    pixels = CELL_PIXELS
    size = puzzle.size
    side = size * pixels + 3
    image, pen = blank_picture(side, side)
    from PIL import ImageFont  # there is Pillow, or the picture would have failed

    font = ImageFont.load_default(size=18)
    rules = puzzle.rules
    if rules and rules.diagonals:
        for place in range(size):
            for col in (place, size - 1 - place):
                x, y = col * pixels + 1, place * pixels + 1
                pen.rectangle((x, y, x + pixels, y + pixels), fill=SAND)
    pen.rectangle((0, 0, side - 1, side - 1), outline=_INK, width=3)
    for cell in range(size * size):
        x, y = cell % size * pixels + 1, cell // size * pixels + 1
        for other in neighbours(size, cell):
            if other > cell:
                corner = (x + pixels, y) if other == cell + 1 else (x, y + pixels)
                is_border = puzzle.boxes[other] != puzzle.boxes[cell]
                line = (corner, (x + pixels, y + pixels))
                pen.line(line, fill=_INK if is_border else _LINE, width=3 if is_border else 1)
    small = ImageFont.load_default(size=9)
    for cage in rules.cages if rules else ():
        first = min(cage[1])
        corner = (first % size * pixels + 6, first // size * pixels + 4)
        pen.text(corner, str(cage[0]), fill=_CAGE, font=small)
    for cell in range(size * size):
        value = grid.cells[cell]
        if value:
            given, right = puzzle.clues[cell], puzzle.solution[cell]
            colour = _INK if given else _RIGHT if value == right else _WRONG
            centre = (cell % size * pixels + pixels / 2 + 1, cell // size * pixels + pixels / 2 + 1)
            pen.text(centre, str(value), fill=colour, font=font, anchor="mm")
    picture = np.array(image)
    for _, cells in rules.cages if rules else ():
        picture[_dashes(size, cells)] = _CAGE
    return picture


def _dashes(size: int, cells: Sequence[int]) -> npt.NDArray[np.bool_]:
    """The pixels of a dashed line along the border of some cells, a little inside it."""
    import numpy as np

    side = size * CELL_PIXELS + 3
    inside, across = np.zeros((side, side), bool), np.add.outer(np.arange(side), np.arange(side))
    for cell in cells:
        y, x = (place * CELL_PIXELS + 1 for place in divmod(cell, size))
        below = 0 if cell + size in cells else _INSET
        right = 0 if cell + 1 in cells and (cell + 1) % size else _INSET
        above = 0 if cell - size in cells else _INSET
        left = 0 if cell - 1 in cells and cell % size else _INSET
        inside[y + above : y + CELL_PIXELS + 1 - below, x + left : x + CELL_PIXELS + 1 - right] = (
            True
        )
    deep = inside.copy()
    for axis in (0, 1):
        for step in (-1, 1):
            deep &= np.roll(inside, step, axis)
    return inside & ~deep & (across // _DASH % 2 == 0)
