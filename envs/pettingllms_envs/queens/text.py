"""Boards and moves as text: what agents read and write, and the level format.

Symbols: `Q` a queen, `F` a fixed queen, `A` to `E` pieces of other kinds, `a` to `e` the same if
fixed, `.` an empty cell. A line above the board says how each other kind attacks: `A 0,1*3 1,2`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from pettingllms.errors import LevelFormatError
from pettingllms.parsing import Item, one_line
from pettingllms.types import ParseError
from pettingllms_envs.grid import first_line, labelled, parse_rows
from pettingllms_envs.level_files import read_blocks
from pettingllms_envs.planning.env import pair_reader
from pettingllms_envs.queens.rules import (
    KINDS,
    MAX_GOALS,
    MAX_SIZE,
    MIN_SIZE,
    QUEEN,
    Columns,
    Kind,
    Level,
    Move,
    attacks,
    distance,
    goals,
)

_NUMBER = re.compile(r"[0-9]{1,4}")
_HEAD = re.compile(r"\s*([A-E])((?: [0-9],[1-9](?:\*[1-9]?)?)+)\s*")
_STEP = re.compile(r"([0-9]),([1-9])(\*?)([1-9]?)")
_FORMAT = "rows of ., with one piece in each: Q, F, or a letter with a line such as A 0,1*3 1,2"
_SYMBOLS = ".QF" + KINDS + KINDS.lower()


def board_text(level: Level, columns: Columns) -> str:
    """The board in the format that `parse_level` reads."""
    size = len(columns)
    pairs = zip(_symbols(level), columns, strict=True)
    rows = ["." * col + symbol + "." * (size - 1 - col) for symbol, col in pairs]
    return "\n".join([*_kind_lines(level), *rows])


def _symbols(level: Level) -> list[str]:
    """The symbol of the piece of each row."""
    letters = level.pieces or "Q" * len(level.fixed)
    fixed = ["F" if letter == "Q" else letter.lower() for letter in letters]
    return [
        (free, still)[is_fixed]
        for free, still, is_fixed in zip(letters, fixed, level.fixed, strict=True)
    ]


def _kind_lines(level: Level) -> list[str]:
    return [f"{letter} {kind_text(kind)}" for letter, kind in zip(KINDS, level.kinds, strict=False)]


def kind_text(kind: Kind) -> str:
    """How a piece attacks: `0,1* 1,2*3 1,3`, any number of steps, at most 3, or one."""
    times = {0: "*", 1: ""}
    return " ".join(f"{a},{b}{times.get(most, f'*{most}')}" for a, b, most in kind)


def labelled_board(level: Level, columns: Columns) -> str:
    """The board with row and column numbers, symbols divided by spaces."""
    size = len(columns)
    # Lines are looked up, not drawn: a prompt of a new board costs one join.
    boards = [_labelled_lines(size, symbol) for symbol in _symbols(level)]
    lines = [
        board[col][row - size] for row, (board, col) in enumerate(zip(boards, columns, strict=True))
    ]
    return "\n".join([*boards[0][0][:-size], *lines])


@cache
def _labelled_lines(size: int, symbol: str) -> list[list[str]]:
    """[column of the piece] -> the lines of a board with the piece there in each row."""
    rows = ["." * col + symbol + "." * (size - 1 - col) for col in range(size)]
    return [labelled([row] * size).text.split("\n") for row in rows]


# Agents of a turn and branches see the same board.
@lru_cache(maxsize=4096)
def scene_text(level: Level, columns: Columns) -> str:
    """What prompts show: the board, its columns and the number of pairs that attack."""
    board, pairs = labelled_board(level, columns), attacks(level, columns)
    attack = f"Columns of the {{}}, from row 0: {list(columns)}. Pairs that attack: {pairs}."
    if not level.kinds:
        return f"{board}\n{attack.format('queens')}"
    kinds = "; ".join([f"Q and F {kind_text(QUEEN)}", *_kind_lines(level)])
    return f"The kinds of pieces: {kinds}.\n{board}\n{attack.format('pieces')}"


def digits(values: Columns | tuple[bool, ...]) -> str:
    """Numbers below 16 as hexadecimal digits, nothing between them."""
    return "".join(f"{int(value):x}" for value in values)


def parse_level(text: str) -> Level:
    """Read a level, strictly.

    Raises:
        LevelFormatError: If kinds of pieces or their lines are ill-formed, it is not a square of 4
            to 16 rows, a row does not hold exactly one piece, no piece is fixed, no solution has
            the fixed pieces, or more than can be listed have them, or the board is solved. Names
            line and column.
    """
    # Only lines about kinds have a space inside. Blank ones take their place, so that errors
    # name the right line.
    lines = text.split("\n")
    heads = {at: line for at, line in enumerate(lines) if " " in line.strip()}
    kinds = [
        _parsed_kind(head, KINDS[at : at + 1], number + 1)
        for at, (number, head) in enumerate(heads.items())
    ]
    board = "\n".join("" if at in heads else line for at, line in enumerate(lines))
    rows = parse_rows(board, symbols=_SYMBOLS)
    line = first_line(board)
    size = len(rows)
    if len(rows[0]) != size or not MIN_SIZE <= size <= MAX_SIZE:
        shape = f"a board of {size}x{len(rows[0])} cells"
        raise LevelFormatError(shape, line, 0, f"squares of side {MIN_SIZE} to {MAX_SIZE}")
    for number, row in enumerate(rows, line):
        if len(row.replace(".", "")) != 1:
            raise LevelFormatError("not exactly one piece in this row", number, 0, _FORMAT)
    symbols = "".join(row.strip(".") for row in rows)
    letters = symbols.replace("F", "Q").upper()
    if (named := set(letters) - {"Q"}) != set(KINDS[: len(kinds)]):
        wrong = f"pieces {sorted(named)}, and {len(kinds)} lines about kinds"
        raise LevelFormatError(wrong, line, 0, _FORMAT)
    columns = tuple(len(row) - len(row.lstrip(".")) for row in rows)
    fixed = tuple(symbol == "F" or symbol.islower() for symbol in symbols)
    level = Level(columns, fixed, 0, tuple(kinds), letters if kinds else "")
    return level._replace(shortest=_checked_shortest(level, line))


def _parsed_kind(head: str, letter: str, line: int) -> Kind:
    found = _HEAD.fullmatch(head)
    if found is None or found[1] != letter:
        raise LevelFormatError("no line about the next kind of piece", line, 0, _FORMAT)
    steps = _STEP.findall(found[2])
    return tuple((int(a), int(b), int(most or not star)) for a, b, star, most in steps)


def _checked_shortest(level: Level, line: int) -> int:
    if not any(level.fixed):
        raise LevelFormatError("no piece is fixed", line, 0, "at least one F, or a to e")
    found = goals(level)
    if not found:
        raise LevelFormatError("no solution has the fixed pieces", line, 0, "a solvable board")
    if len(found) > MAX_GOALS:
        many = f"more than {MAX_GOALS} solutions have the fixed pieces"
        raise LevelFormatError(many, line, 0, "a board with more fixed pieces")
    shortest = distance(level, level.start)
    if not shortest:
        raise LevelFormatError("no piece attacks another", line, 0, "a board to repair")
    return shortest


def parse_levels(text: str) -> list[Level]:
    """Read a file of levels, divided by blank lines; errors name the line of the file."""
    return read_blocks(text, parse_level, _FORMAT)


def moves_json(moves: tuple[Move, ...]) -> str:
    """Moves as JSON: `[[0,3],[2,1]]`."""
    return "[" + ",".join([f"[{row},{col}]" for row, col in moves]) + "]"


def moves_terse(level: Level, moves: tuple[Move, ...]) -> str:
    """Moves as pairs of digits, `0321`; as JSON where rows have numbers of two digits."""
    if len(level.start) > 10:
        return moves_json(moves)
    return "".join(f"{row}{col}" for row, col in moves)


def _move(item: Item) -> Move | ParseError:
    numbers = [one for one in item if isinstance(one, str) and _NUMBER.fullmatch(one)]
    if isinstance(item, list) and len(item) == len(numbers) == 2:
        return Move(int(numbers[0]), int(numbers[1]))
    return ParseError(f"{one_line(str(item), 40)} is not a move [row, column]")


def _made(row: str, col: str) -> Move:
    return Move(int(row), int(col))


READER = pair_reader(r"(?:[0-9]{2})+", r"\[([0-9]{1,4}), ?([0-9]{1,4})\]", _made, _move)
