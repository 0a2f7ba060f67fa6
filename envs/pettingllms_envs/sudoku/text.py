"""Sudoku as text: puzzles that people write, answers that models write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from pettingllms.errors import LevelFormatError
from pettingllms.parsing import Item, ListReader
from pettingllms.types import ParseError
from pettingllms_envs.sudoku.drawn import boxes_of, read_rules, rules_lines, solutions
from pettingllms_envs.sudoku.generator import Puzzle
from pettingllms_envs.sudoku.rules import Fill, FillAnswer
from pettingllms_envs.sudoku.solver import BOX_SHAPES, singles_suffice

SYMBOLS = "0123456789ABCDEFG"
"""Symbol of each value in puzzle texts; `.` and `0` are empty cells."""

USUAL_CHARS = 2000
"""Longest answer in the usual form that is remembered with its fills, in characters."""

_FILL = r"\[\d{1,2}, ?\d{1,2}, ?\d{1,2}\]"
_USUAL = re.compile(rf"\[{_FILL}(?>(?:, ?{_FILL})*)\]", re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,4}")
_RULES = re.compile(r"\s(?=\s*(?:boxes|cages|diagonals))")
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
    puzzles = [
        read_puzzle(line, first_line=number)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith(";")
    ]
    if not puzzles:
        raise LevelFormatError("the file has no puzzle", allowed="one puzzle per line")
    return puzzles


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
