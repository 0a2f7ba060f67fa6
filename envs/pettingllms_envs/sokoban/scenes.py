"""What the shell asks of a state again and again, computed once per level and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pettingllms_envs.grid import cells_of
from pettingllms_envs.sokoban.guide import guide_of
from pettingllms_envs.sokoban.reward import potential
from pettingllms_envs.sokoban.rules import (
    BOX,
    BOX_ON_GOAL,
    FLOOR,
    GOAL,
    PLAYER,
    PLAYER_ON_GOAL,
    WALL,
    Level,
    Run,
    run,
)

MAX_CACHED = 4096
"""Entries of each cache of a level; a full cache is emptied."""

_MAX_CACHED_MOVES = 64


class Scene(NamedTuple):
    """A placement of player and boxes, as text and as numbers."""

    text: str
    """The board in XSB symbols, one line per row."""
    places: str
    """A sentence with the cells of player, boxes and goals."""
    potential: float
    pushes_left: int
    """Lower bound of the pushes left, -1 if the level is certainly lost."""
    facts: Mapping[str, Any]
    """What infos tell of it."""


class Scenes:
    """The scenes of one level, and what moves do in it."""

    __slots__ = ("_drawings", "_empty", "_level", "_runs", "_scenes")

    def __init__(self, level: Level) -> None:
        cells = [WALL] * (level.rows * level.stride - 1)
        cells[level.cols :: level.stride] = "\n" * (level.rows - 1)
        for cell in cells_of(level.floor):
            cells[cell] = GOAL if level.goals >> cell & 1 else FLOOR
        self._level = level
        self._empty = "".join(cells)
        self._drawings: dict[int, str] = {}
        self._scenes: dict[tuple[int, int], Scene] = {}
        self._runs: dict[tuple[int, int, str], Run] = {}

    def text(self, player: int, boxes: int) -> str:
        """Return the board in XSB symbols, one line per row."""
        drawing = self._drawings.get(boxes)
        if drawing is None:
            drawing = self._draw_boxes(boxes)
        symbol = PLAYER_ON_GOAL if self._level.goals >> player & 1 else PLAYER
        return drawing[:player] + symbol + drawing[player + 1 :]

    def _draw_boxes(self, boxes: int) -> str:
        cells = list(self._empty)
        for cell in cells_of(boxes):
            cells[cell] = BOX_ON_GOAL if self._level.goals >> cell & 1 else BOX
        if len(self._drawings) >= MAX_CACHED:
            self._drawings.clear()
        drawing = self._drawings[boxes] = "".join(cells)
        return drawing

    def scene(self, player: int, boxes: int) -> Scene:
        """Return the scene of a placement."""
        key = (player, boxes)
        found = self._scenes.get(key)
        if found is None:
            if len(self._scenes) >= MAX_CACHED:
                self._scenes.clear()
            found = self._scenes[key] = self._compose(player, boxes)
        return found

    def _compose(self, player: int, boxes: int) -> Scene:
        level = self._level
        row, col = divmod(player, level.stride)
        pushes_left = guide_of(level).pushes_left(boxes)
        places = (
            f"Player at (row, column) ({row}, {col}). "
            f"Boxes not on goals: {cell_list(boxes & ~level.goals, level.stride)}. "
            f"Goals without a box: {cell_list(level.goals & ~boxes, level.stride)}."
        )
        return Scene(
            text=self.text(player, boxes),
            places=places,
            potential=potential(level, player, boxes),
            pushes_left=pushes_left,
            facts={
                "boxes_home": (boxes & level.goals).bit_count(),
                "pushes_left": pushes_left,
                "lost": pushes_left < 0,
                "certificate": level.certificate,
                "level_moves": level.num_moves,
            },
        )

    def run(self, player: int, boxes: int, moves: str) -> Run:
        """Return what moves do; see `rules.run`."""
        if len(moves) > _MAX_CACHED_MOVES:
            return run(self._level, player, boxes, moves)
        key = (player, boxes, moves)
        done = self._runs.get(key)
        if done is None:
            if len(self._runs) >= MAX_CACHED:
                self._runs.clear()
            done = self._runs[key] = run(self._level, player, boxes, moves)
        return done


def scenes_of(level: Level) -> Scenes:
    """Return the scenes of a level."""
    scenes = level.memo.get("scenes")
    if scenes is None:
        scenes = level.memo["scenes"] = Scenes(level)
    return scenes


def cell_list(bits: int, stride: int) -> str:
    """Return the cells of a bit-board as `(row, column)`, divided by commas."""
    return ", ".join(f"({cell // stride}, {cell % stride})" for cell in cells_of(bits)) or "none"
