"""Boards and moves as text: what agents read and write, and the level format.

Symbols: `Q` a queen, `F` a fixed queen, `.` an empty cell.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from pettingllms.errors import LevelFormatError
from pettingllms.parsing import (
    Item,
    Part,
    answer_part,
    bare_answer,
    one_line,
    printed_part,
    read_list,
    usual_answer,
)
from pettingllms.transition import ParseError
from pettingllms_envs.drawing import labelled
from pettingllms_envs.grid import first_line, parse_rows
from pettingllms_envs.level_files import read_blocks
from pettingllms_envs.queens.rules import (
    MAX_SIZE,
    MIN_SIZE,
    Columns,
    Level,
    Move,
    attacks,
    distance,
    goals,
)

_TERSE = re.compile(r"(?:[0-9]{2})+")
_NUMBER = re.compile(r"[0-9]{1,4}")
_PAIR = r"\[[0-9]{1,4}, ?[0-9]{1,4}\]"
_USUAL = re.compile(rf"\[{_PAIR}(?>(?:, ?{_PAIR})*)\]")
_FORMAT = "rows of ., with one Q or F in each"

USUAL_CHARS = 120
"""Longest text, or answer in the usual form, that is remembered with its moves, in characters."""


def board_rows(level: Level, columns: Columns) -> list[str]:
    """Return the board as rows of symbols."""
    size = len(columns)
    return [
        "." * col + ("F" if level.fixed[row] else "Q") + "." * (size - 1 - col)
        for row, col in enumerate(columns)
    ]


def board_text(level: Level, columns: Columns) -> str:
    """Return the board in the format that `parse_level` reads."""
    return "\n".join(board_rows(level, columns))


def labelled_board(level: Level, columns: Columns) -> str:
    """Return the board with row and column numbers, symbols divided by spaces."""
    head, rows = _labelled_rows(len(columns))
    lines = [
        row[is_fixed][col] for row, is_fixed, col in zip(rows, level.fixed, columns, strict=True)
    ]
    return "\n".join([head, *lines])


@cache
def _labelled_rows(size: int) -> tuple[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]]:
    """Return the line of column numbers, and [row][is fixed][column of the queen] -> line."""
    boards = [
        [
            labelled(["." * col + symbol + "." * (size - 1 - col)] * size).text.split("\n")
            for col in range(size)
        ]
        for symbol in "QF"
    ]
    free, fixed = ([tuple(lines) for lines in zip(*one, strict=True)] for one in boards)
    return free[0][0], tuple(zip(free[1:], fixed[1:], strict=True))


# Agents of a turn and branches see the same board.
@lru_cache(maxsize=4096)
def scene_text(level: Level, columns: Columns) -> str:
    """Return what prompts show: the board, its columns and the number of pairs that attack."""
    board, pairs = labelled_board(level, columns), attacks(columns)
    return (
        f"{board}\nColumns of the queens, from row 0: {list(columns)}. Pairs that attack: {pairs}."
    )


def digits(values: Columns | tuple[bool, ...]) -> str:
    """Return numbers below 10 as digits, nothing between them."""
    return "".join(str(int(value)) for value in values)


def parse_level(text: str) -> Level:
    """Read a level, strictly.

    Raises:
        LevelFormatError: If it is no square of 4 to 10 rows, a row does not hold exactly one
            queen, no queen is fixed, no solution has the fixed queens, or the board is solved.
            Names line and column.
    """
    rows = parse_rows(text, symbols=".QF")
    line, size = first_line(text), len(rows)
    if len(rows[0]) != size or not MIN_SIZE <= size <= MAX_SIZE:
        shape = f"a board of {size}x{len(rows[0])} cells"
        raise LevelFormatError(shape, line, 0, f"squares of side {MIN_SIZE} to {MAX_SIZE}")
    for number, row in enumerate(rows, line):
        if len(row.replace(".", "")) != 1:
            raise LevelFormatError("not exactly one queen in this row", number, 0, _FORMAT)
    columns = tuple(len(row) - len(row.lstrip(".")) for row in rows)
    level = Level(columns, tuple("F" in row for row in rows), 0)
    if not any(level.fixed):
        raise LevelFormatError("no queen is fixed", line, 0, "at least one F")
    if not goals(level):
        raise LevelFormatError("no solution has the fixed queens", line, 0, "a solvable board")
    level = level._replace(shortest=distance(level, columns))
    if not level.shortest:
        raise LevelFormatError("no queen attacks another", line, 0, "a board to repair")
    return level


def parse_levels(text: str) -> list[Level]:
    """Read a file of levels, divided by blank lines; errors name the line of the file."""
    return read_blocks(text, parse_level, _FORMAT)


def moves_json(moves: tuple[Move, ...]) -> str:
    """Return moves as JSON: `[[0,3],[2,1]]`."""
    return "[" + ",".join([f"[{row},{col}]" for row, col in moves]) + "]"


def moves_compact(moves: tuple[Move, ...]) -> str:
    """Return moves as pairs of digits: `0321`."""
    return "".join(f"{row}{col}" for row, col in moves)


def read_moves(text: str) -> tuple[Move, ...] | ParseError:
    """Read the moves of an answer: a list of [row, column], or bare pairs of digits `0321`."""
    return (_short_answer if len(text) <= USUAL_CHARS else _read)(text)


def _read(text: str) -> tuple[Move, ...] | ParseError:
    if _TERSE.fullmatch(text):
        return _pairs(text)
    usual = usual_answer(text, USUAL_CHARS)
    if usual is not None and _USUAL.fullmatch(usual):
        numbers = map(int, _NUMBER.findall(usual))
        return tuple(map(Move, numbers, numbers))
    part = answer_part(text)
    if isinstance(part, ParseError):
        return part
    bare = bare_answer(part)
    return _pairs(bare) if _TERSE.fullmatch(bare) else _moves_of(part)


# Trained policies write few different short texts, and branches of a group often the same.
_short_answer = lru_cache(maxsize=4096)(_read)


def read_printed(text: str) -> tuple[Move, ...] | ParseError:
    """Read the moves that a program printed."""
    return _moves_of(printed_part(text))


def _pairs(text: str) -> tuple[Move, ...]:
    return tuple(Move(int(text[at]), int(text[at + 1])) for at in range(0, len(text), 2))


def _moves_of(part: Part) -> tuple[Move, ...] | ParseError:
    items = read_list(part)
    if isinstance(items, ParseError):
        return items
    if len(items) == 2 and all(isinstance(item, str) for item in items):
        items = [items]  # one move without the outer brackets
    moves: list[Move] = []
    for item in items:
        move = _move(item)
        if isinstance(move, ParseError):
            return move
        moves.append(move)
    return tuple(moves)


def _move(item: Item) -> Move | ParseError:
    numbers = [one for one in item if isinstance(one, str) and _NUMBER.fullmatch(one)]
    if isinstance(item, list) and len(item) == len(numbers) == 2:
        return Move(int(numbers[0]), int(numbers[1]))
    return ParseError(f"{one_line(str(item), 40)} is no move [row, column]")
