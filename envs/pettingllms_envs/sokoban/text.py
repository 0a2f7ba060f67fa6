"""Boards as text and pictures; levels from XSB boards, and files of them such as Boxoban's."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from pettingllms.errors import LevelFormatError
from pettingllms_envs import grid
from pettingllms_envs.grid import (
    Drawing,
    Shape,
    bits_of,
    cells_of,
    compact,
    find_symbols,
    flood,
    labelled,
)
from pettingllms_envs.level_files import read_blocks
from pettingllms_envs.sokoban.rules import (
    BOX,
    BOX_ON_GOAL,
    FLOOR,
    GOAL,
    PLAYER,
    PLAYER_ON_GOAL,
    WALL,
    Level,
    Placement,
    certify,
    is_small,
    warehouse_of,
)
from pettingllms_envs.terrain import (
    FREE,
    opened_text,
    read_board,
    rules_text,
    shown_symbols,
    symbols_of,
    under_text,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SYMBOLS = WALL + FLOOR + GOAL + BOX + BOX_ON_GOAL + PLAYER + PLAYER_ON_GOAL

SHOWN_FLOOR = "_"
"""Free floor where agents read it, as in some XSB files: a space would be no symbol of its own."""

MAX_BOXES = 10

PUSHES = """ Boxes slide in the same way, and enter no keys and doors that are not free cells yet. \
A push needs a player that can enter the cell of the box; the box moves first, and only the first \
step of a move pushes: a sliding player stops before a box."""
"""What prompts say of rules beyond `pettingllms_envs.terrain.WORDS`."""

_FLOOR = str.maketrans("-_", FLOOR * 2)
_LETTER = re.compile(r"[a-z]")
_THING = re.compile(r"[ .$*@+]")
_REMARK = re.compile(r";|[A-Za-z][A-Za-z -]+:")


def level_text(level: Level) -> str:
    """A level as an XSB board, with the lines of its rules below it."""
    return full_text(level, level.start)


def board_text(level: Level, place: Placement) -> str:
    """The board in XSB symbols, one line per row."""
    return _with_player(_plain(level, place.boxes, place.opened), level, place.player)


def full_text(level: Level, place: Placement) -> str:
    """The board in XSB symbols and, with rules, their lines and those of `under_text`."""
    return board_text(level, place) + _rule_lines(level, place)


def shown_text(level: Level, place: Placement) -> str:
    """The board as agents and their programs read it: free floor is `_`."""
    return board_text(level, place).replace(FLOOR, SHOWN_FLOOR)


def program_text(level: Level, place: Placement) -> str:
    """What programs read: `shown_text` and, with rules, the same lines as `full_text`."""
    return shown_text(level, place) + _rule_lines(level, place)


def labelled_text(level: Level, place: Placement) -> str:
    """The board with row and column numbers, divided by spaces."""
    return _with_player(_still(level, place.boxes, place.opened)[0], level, place.player)


def places_text(level: Level, place: Placement) -> str:
    """Sentences with the cells of player, boxes and goals, open doors, hidden letters."""
    row, col = divmod(place.player, level.cols + 1)
    still, more = _still(level, place.boxes, place.opened)[1], ""
    if level.rules:
        more = opened_text(level.rules, place.opened) + _under(level, place)
    return f"Player at (row, column) ({row}, {col}). {still}{more}"


# Agents of a turn, branches and later turns often see the same scene.
@lru_cache(maxsize=4096)
def scene_text(level: Level, place: Placement) -> str:
    """What prompts show of a scene: the board, and below it the places and the rules."""
    rules = rules_text(level.rules, PUSHES)
    return f"{labelled_text(level, place)}\n{places_text(level, place)}{rules}"


def _under(level: Level, place: Placement) -> str:
    covered = [place.player, *cells_of(place.boxes)]
    return under_text(level.rules, level.cells, place.opened, covered, level.stride)


def _rule_lines(level: Level, place: Placement) -> str:
    return f"\n{level.rules}{_under(level, place)}" if level.rules else ""


def cell_list(bits: int, stride: int) -> str:
    """The cells of a bit-board as `(row, column)`, divided by commas."""
    return ", ".join([f"({cell // stride}, {cell % stride})" for cell in cells_of(bits)]) or "none"


# Most moves push no box: only the player has another place.
@lru_cache(maxsize=1024)
def _plain(level: Level, boxes: int, opened: int) -> Drawing:
    return compact(_rows(level, boxes, opened, FLOOR))


@lru_cache(maxsize=1024)
def _still(level: Level, boxes: int, opened: int) -> tuple[Drawing, str]:
    """The board without the player as prompts show it, and the places of all else."""
    stride, goals = level.stride, level.goals
    places = (
        f"Boxes not on goals: {cell_list(boxes & ~goals, stride)}. "
        f"Goals without a box: {cell_list(goals & ~boxes, stride)}."
    )
    return labelled(_rows(level, boxes, opened, SHOWN_FLOOR)), places


def _rows(level: Level, boxes: int, opened: int, floor: str) -> list[str]:
    """The rows of the board without the player; `floor` is the symbol of free floor."""
    stride, goals = level.stride, level.goals
    # Reversed, since bit 0 is the last digit; the guard column is cut by the slices.
    bits = f"{level.floor:0{level.rows * stride}b}"[::-1]
    text = bits.replace("0", WALL).replace("1", floor)
    if level.rules:
        text = level.cells.translate(shown_symbols(level.rules, opened)).replace(FREE, floor)
    things = ((goals & ~boxes, GOAL), (boxes & ~goals, BOX), (boxes & goals, BOX_ON_GOAL))
    for cells, symbol in things:
        for cell in cells_of(cells):
            text = text[:cell] + symbol + text[cell + 1 :]
    return [text[start : start + level.cols] for start in range(0, len(text), stride)]


def _with_player(drawing: Drawing, level: Level, player: int) -> str:
    symbol = PLAYER_ON_GOAL if level.goals >> player & 1 else PLAYER
    return drawing.with_symbol(*divmod(player, level.cols + 1), symbol)


def read_level(text: str) -> Level:
    """Read one XSB board: `#` wall, `@` player, `$` box, `.` goal, `+`, `*` both on a goal.

    Free floor is a space, `-` or `_`. Letters are cells with rules, if the lines below the board
    are rules as `pettingllms_envs.terrain` says.

    Args:
        text: Rows, one per line; shorter ones are filled up with floor on the right.

    Returns:
        The level; small ones (`is_small`) with the certificate `"optimal"`, others without. Its
        floor is what the player could reach without boxes.

    Raises:
        LevelFormatError: For an unknown symbol, not exactly one player, boxes that are
            not as many as goals, none or more than 10 boxes, a board that is not enclosed by walls,
            a box or a goal that is walled off, a level that is solved already or has no solution,
            or more than 64 rows or columns; it names line and column, counted from 1.
    """
    rows, rules, line = read_board(text, SYMBOLS, FLOOR, _FLOOR)
    level = _level_of([_LETTER.sub(FLOOR, row) for row in rows], line, bool(rules))
    if not rules:
        return level
    cells = [_THING.sub(FREE, row).translate(symbols_of(rules)) for row in rows]
    level = level._replace(cells="\n".join(cells), rules=rules)
    if (moves := warehouse_of(level).solve(level.start)) is None:
        raise LevelFormatError("by its rules the level has no solution", line)
    return level._replace(certificate="optimal", num_moves=len(moves))


def read_levels_of_file(text: str) -> list[Level]:
    """Read a file of levels, as Boxoban's and the usual XSB collections are.

    Boards are divided by blank lines, lines that begin with `;`, and lines such as `Title: ...`.

    Raises:
        LevelFormatError: As `read_level`, with the line in the file; or if there is no level.
    """
    return read_blocks(text, read_level, "boards divided by blank lines", _REMARK.match)


def _level_of(rows: list[str], top: int, has_rules: bool) -> Level:
    stride = len(rows[0]) + 1
    players = find_symbols(rows, PLAYER + PLAYER_ON_GOAL)
    if len(players) != 1:
        place = _place(players[1], top) if players else (top, 0)
        problem = f"{len(players)} players" if players else "no player"
        raise LevelFormatError(problem, *place, "exactly one @ or +")
    player = players[0][0] * stride + players[0][1]
    floor = flood(bits_of(rows, SYMBOLS.replace(WALL, "")), 1 << player, stride)
    goals = bits_of(rows, GOAL + BOX_ON_GOAL + PLAYER_ON_GOAL)
    level = Level(len(rows), stride - 1, floor, goals, bits_of(rows, BOX + BOX_ON_GOAL), player)
    _check_walls(rows, level, top)
    _check_boxes(level, top)
    is_certain = is_small(floor.bit_count(), level.boxes.bit_count()) and not has_rules
    return certify(level, top) if is_certain else level


def _check_walls(rows: list[str], level: Level, top: int) -> None:
    last_row, last_col = level.rows - 1, level.cols - 1
    for row, col in find_symbols(rows, SYMBOLS.replace(WALL, "")):
        is_floor = level.floor >> row * level.stride + col & 1
        if is_floor and (row in (0, last_row) or col in (0, last_col)):
            problem = "the floor is open to the edge of the board"
            allowed = "walls all around the cells that the player can reach"
            raise LevelFormatError(problem, *_place((row, col), top), allowed)
        if not is_floor and rows[row][col] != FLOOR:
            problem = f"{rows[row][col]!r} is walled off from the player"
            allowed = "boxes and goals on cells that the player could reach without boxes"
            raise LevelFormatError(problem, *_place((row, col), top), allowed)


def _check_boxes(level: Level, top: int) -> None:
    num_boxes, num_goals = level.boxes.bit_count(), level.goals.bit_count()
    if num_boxes != num_goals or not 0 < num_boxes <= MAX_BOXES:
        problem = f"{num_boxes} boxes and {num_goals} goals"
        allowed = f"as many boxes as goals, 1 to {MAX_BOXES}"
        raise LevelFormatError(problem, top, 0, allowed)
    if level.boxes == level.goals:
        raise LevelFormatError("all boxes are on goals already", top, 0, "a box to push")
    if warehouse_of(level).pushes_left(level.start) < 0:
        problem = "the level cannot be solved: a box can reach no goal, or boxes block each other"
        raise LevelFormatError(problem, top, 0, "boxes that can be pushed to the goals")


def _place(cell: tuple[int, int], top: int) -> tuple[int, int]:
    return cell[0] + top, cell[1] + 1


_RING, _SHIRT = Shape("ellipse", 7, None, grid.GREEN, 3), Shape("ellipse", 5, grid.BLUE)
_WOOD, _WOOD_HOME = (
    Shape("rectangle", 4, fill, (120, 82, 36)) for fill in ((206, 150, 82), (120, 178, 98))
)
_SHAPES = {
    symbol: (Shape("rectangle", 0, fill, grid.LINE), *marks)
    for symbol, fill, *marks in (
        (WALL, grid.STONE),
        (FLOOR, grid.PAPER),
        (GOAL, grid.PAPER, _RING),
        (BOX, grid.PAPER, _WOOD),
        (BOX_ON_GOAL, grid.PAPER, _RING, _WOOD_HOME),
        (PLAYER, grid.PAPER, _SHIRT),
        (PLAYER_ON_GOAL, grid.PAPER, _RING, _SHIRT),
    )
}


def draw_image(level: Level, place: Placement) -> npt.NDArray[np.uint8]:
    """A picture: dark walls, green rings for goals, boxes (green at home), a blue player."""
    return grid.board_picture(board_text(level, place).split("\n"), _SHAPES)
