"""Levels and positions as text and pictures: boards that agents read, and the level format.

Symbols: `P` player, `G` goal, `*` player on the goal, `#` wall, `.` free cell, and letters with
rules of the level, which stand below its board.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from pettingllms.errors import LevelFormatError
from pettingllms_envs import grid
from pettingllms_envs.grid import (
    UNREACHABLE,
    Drawing,
    Shape,
    compact,
    find_symbols,
    first_line,
    labelled,
    parse_rows,
)
from pettingllms_envs.level_files import read_blocks
from pettingllms_envs.plan_path.generator import MAX_SIZE
from pettingllms_envs.plan_path.rules import Level, Maze, RuledMaze
from pettingllms_envs.terrain import (
    FREE,
    WALL,
    letters_of,
    opened_text,
    rules_text,
    shown_symbols,
    split_rules,
    symbols_of,
    under_text,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PLAYER, GOAL, PLAYER_ON_GOAL = "P", "G", "*"
_FORMAT = "one P, one G, # and . in rows of equal length"


def _rows(level: Level, opened: int) -> list[str]:
    cells, goal = level.cells, level.goal
    if level.rules:
        cells = cells.translate(shown_symbols(level.rules, opened))
    return (cells[:goal] + GOAL + cells[goal + 1 :]).split("\n")


@lru_cache(maxsize=512)
def _compact(level: Level, opened: int) -> Drawing:
    return compact(_rows(level, opened))


@lru_cache(maxsize=512)
def _labelled(level: Level, opened: int) -> Drawing:
    return labelled(_rows(level, opened))


@lru_cache(maxsize=512)
def _goal_text(level: Level) -> str:
    row, col = divmod(level.goal, level.stride)
    return f"The goal is at row {row}, column {col}."


def compact_board(level: Level, position: int) -> str:
    """Return the board as rows of symbols without anything between or around them."""
    return _with_player(_compact, level, position)


def labelled_board(level: Level, position: int) -> str:
    """Return the board with its row and column numbers, symbols divided by spaces."""
    return _with_player(_labelled, level, position)


def _with_player(draw: Callable[[Level, int], Drawing], level: Level, position: int) -> str:
    opened = 0
    if level.rules:
        opened, position = divmod(position, level.area)
    symbol = PLAYER if position != level.goal else PLAYER_ON_GOAL
    return draw(level, opened).with_symbol(*divmod(position, level.cols + 1), symbol)


def places_text(level: Level, position: int) -> str:
    """Return sentences with the places of player and goal, and on the doors that are open."""
    more = ""
    if level.rules:
        more = _under_player(level, position)
        opened, position = divmod(position, level.area)
        more = opened_text(level.rules, opened) + more
    row, col = divmod(position, level.cols + 1)
    return f"The player is at row {row}, column {col}. {_goal_text(level)}{more}"


# Agents of a turn, branches and later turns often see the player in the same place.
@lru_cache(maxsize=4096)
def scene_text(level: Level, position: int) -> str:
    """Return what prompts show of a scene: the board, and below it the places and the rules."""
    places = places_text(level, position)
    return f"{labelled_board(level, position)}\n{places}{rules_text(level.rules)}"


def _under_player(level: Level, position: int) -> str:
    opened, cell = divmod(position, level.area)
    return under_text(level.rules, level.cells, opened, [cell], level.stride)


def centred_rows(level: Level, position: int) -> list[str]:
    """Return the board rolled so that the player is in the middle.

    The board gets one more row and one more column of walls, which mark its edge, and is then
    seen as a torus: (rows + 1) rows of (cols + 1) symbols, with the player in row (rows + 1) // 2
    and column (cols + 1) // 2.
    """
    height, width = level.rows + 1, level.cols + 1
    row, col = divmod(position % level.area, width)
    left = (col - width // 2) % width
    lines = [line + WALL for line in compact_board(level, position).split("\n")]
    lines.append(WALL * width)
    top = (row - height // 2) % height
    return [(line * 2)[left : left + width] for line in lines[top:] + lines[:top]]


def level_text(level: Level, position: int | None = None) -> str:
    """Return a level in the format that `parse_level` reads, with what `under_text` adds."""
    position = level.start if position is None else position
    board = compact_board(level, position)
    return f"{board}\n{level.rules}{_under_player(level, position)}" if level.rules else board


def parse_levels(text: str) -> list[Level]:
    """Read a file of levels, divided by blank lines; errors name the line of the file."""
    return read_blocks(text, parse_level, _FORMAT)


def parse_level(text: str) -> Level:
    """Read a level, strictly.

    Args:
        text: One line per row, of `#` (wall), `.` (free), one `P` (start), one `G` (goal), and
            letters with rules, if the lines below are rules as `pettingllms_envs.terrain` says.

    Raises:
        LevelFormatError: If a symbol is unknown, rows differ in length, P or G is missing or occurs
            twice, a side is longer than 64, or no path leads from P to G. Names line and column.
    """
    text, rules = split_rules(text)
    letters = "".join(letters_of(rules).values())
    rows = parse_rows(text, symbols=WALL + FREE + PLAYER + GOAL + letters)
    line = first_line(text)
    if max(len(rows), len(rows[0])) > MAX_SIZE:
        size = f"{len(rows)}x{len(rows[0])}"
        raise LevelFormatError(f"a board of {size} cells", line, 0, f"sides of 1 to {MAX_SIZE}")
    stride = len(rows[0]) + 1
    places: list[int] = []
    for symbol in (PLAYER, GOAL):
        found = find_symbols(rows, symbol)
        if not found:
            raise LevelFormatError(f"there is no {symbol}", allowed=_FORMAT)
        if len(found) > 1:
            row, col = found[1]
            raise LevelFormatError(f"a second {symbol}", line + row, col + 1, _FORMAT)
        places.append(found[0][0] * stride + found[0][1])
    start, goal = places
    cells = "\n".join(rows).replace(PLAYER, FREE).replace(GOAL, FREE)
    if rules:
        cells = cells.translate(symbols_of(rules))
    level = Level(len(rows), len(rows[0]), cells, start, goal, 0, rules)
    # Made anew, since the rewards of the level below are not those of one of length 0.
    shortest = (RuledMaze if rules else Maze)(level).distance(start)
    if shortest == UNREACHABLE:
        row, col = divmod(goal, stride)
        problem = "no path leads from P to G"
        raise LevelFormatError(problem, line + row, col + 1, "a goal that can be reached")
    return level._replace(shortest=shortest)


_SHAPES = {
    symbol: (Shape("rectangle", 0, fill, grid.LINE), *marks)
    for symbol, fill, *marks in (
        (WALL, grid.STONE),
        (FREE, grid.PAPER),
        (GOAL, grid.GREEN),
        (PLAYER, grid.PAPER, Shape("ellipse", 5, grid.BLUE)),
        (PLAYER_ON_GOAL, grid.GREEN, Shape("ellipse", 5, grid.BLUE)),
    )
}


def draw_image(level: Level, position: int) -> npt.NDArray[np.uint8]:
    """Return a picture of the board: dark walls, a green goal, a blue player, letters on sand."""
    return grid.board_picture(compact_board(level, position).split("\n"), _SHAPES)
