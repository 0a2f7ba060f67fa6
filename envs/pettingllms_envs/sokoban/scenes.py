"""What the shell asks of a state again and again, computed once per level and state."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from pettingllms_envs.grid import cells_of, labelled_rows
from pettingllms_envs.reward import shaped
from pettingllms_envs.sokoban.guide import guide_of
from pettingllms_envs.sokoban.rules import (
    BOX,
    BOX_ON_GOAL,
    FLOOR,
    GOAL,
    PLAYER,
    PLAYER_ON_GOAL,
    WALL,
    Level,
)

SHOWN_FLOOR = "_"
"""Free floor where agents read it, as in some XSB files: a space would be no symbol of its own."""

MAX_LAYOUTS, MAX_PLACES = 256, 64
"""Placements of the boxes that a level keeps, and places of the player in each of them."""

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Table(dict[KeyT, ValueT]):
    """A dictionary that computes what is missing, and is emptied when it is full.

    Args:
        compute: The value of a key.
        limit: The maximum number of entries.
    """

    __slots__ = ("_compute", "_limit")

    def __init__(self, compute: Callable[[KeyT], ValueT], limit: int) -> None:
        super().__init__()
        self._compute = compute
        self._limit = limit

    def __missing__(self, key: KeyT) -> ValueT:
        if len(self) >= self._limit:
            self.clear()
        value = self[key] = self._compute(key)
        return value


class Layout:
    """A placement of the boxes: what is the same for all places of the player, and tables.

    Attributes:
        pushes_left: Lower bound of the pushes left, -1 if the level is certainly lost.
        decided: Infos of the planner, with blanks for what differs between actions.
        proposed: Infos of the other roles, with such blanks.
        potentials: Player's cell -> potential; see `reward.shaped`.
        views: Player's cell -> the board with row and column numbers, and a sentence with the cells
            of player, boxes and goals.
    """

    __slots__ = ("decided", "potentials", "proposed", "pushes_left", "views")

    def __init__(self, scenes: Scenes, boxes: int) -> None:
        level, guide = scenes.level, guide_of(scenes.level)
        goals, stride = level.goals, level.stride
        self.pushes_left = guide.pushes_left(boxes)
        facts = {
            "illegal_moves": 0,
            "cut_moves": 0,
            "boxes_home": (boxes & goals).bit_count(),
            "pushes_left": self.pushes_left,
            "lost": self.pushes_left < 0,
            "certificate": level.certificate,
            "level_moves": level.num_moves,
            "moves_used": 0,
        }
        self.decided: dict[str, Any] = {**facts, "executed": None, "num_pushes": 0}
        self.proposed: dict[str, Any] = {**facts, "proposed": None}
        self.potentials = Table[int, float](
            lambda player: shaped(guide.distance(player, boxes), guide.start), MAX_PLACES
        )
        places = (
            f"Boxes not on goals: {cell_list(boxes & ~goals, stride)}. "
            f"Goals without a box: {cell_list(goals & ~boxes, stride)}."
        )

        def view(player: int) -> tuple[str, str]:
            row, col = divmod(player, stride)
            text = labelled_rows(scenes.shown(player, boxes).split("\n"))
            return text, f"Player at (row, column) ({row}, {col}). {places}"

        self.views = Table(view, MAX_PLACES)


class Scenes:
    """The boards of one level as texts and as numbers.

    Attributes:
        layouts: Cells with boxes -> what is known of that placement.
    """

    __slots__ = ("_drawings", "_empty", "layouts", "level")

    def __init__(self, level: Level) -> None:
        cells = [WALL] * (level.rows * level.stride - 1)
        cells[level.cols :: level.stride] = "\n" * (level.rows - 1)
        for cell in cells_of(level.floor):
            cells[cell] = GOAL if level.goals >> cell & 1 else FLOOR
        self.level = level
        self._empty = "".join(cells)
        self._drawings = Table(self._draw_boxes, MAX_LAYOUTS)
        self.layouts = Table[int, Layout](lambda boxes: Layout(self, boxes), MAX_LAYOUTS)

    def text(self, player: int, boxes: int) -> str:
        """Return the board in XSB symbols, one line per row."""
        drawing = self._drawings[boxes]
        symbol = PLAYER_ON_GOAL if self.level.goals >> player & 1 else PLAYER
        return drawing[:player] + symbol + drawing[player + 1 :]

    def shown(self, player: int, boxes: int) -> str:
        """Return the board as agents and their programs read it: free floor is `_`."""
        return self.text(player, boxes).replace(FLOOR, SHOWN_FLOOR)

    def _draw_boxes(self, boxes: int) -> str:
        cells = list(self._empty)
        for cell in cells_of(boxes):
            cells[cell] = BOX_ON_GOAL if self.level.goals >> cell & 1 else BOX
        return "".join(cells)


@lru_cache(maxsize=512)
def scenes_of(level: Level) -> Scenes:
    """Return the scenes of a level."""
    return Scenes(level)


def cell_list(bits: int, stride: int) -> str:
    """Return the cells of a bit-board as `(row, column)`, divided by commas."""
    return ", ".join(f"({cell // stride}, {cell % stride})" for cell in cells_of(bits)) or "none"
