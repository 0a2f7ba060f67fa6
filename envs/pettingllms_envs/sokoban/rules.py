"""The rules of Sokoban on bit-boards: a level, its tables, and what moves do. No reward, no prompt.

Cells are numbered as `pettingllms_envs.grid` says; a set of cells is an int.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pettingllms_envs.grid import cells_of, deltas

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = "# .$*@+"


class Level(NamedTuple):
    """A warehouse with its boxes and the player at their first places."""

    rows: int
    cols: int
    floor: int
    """The cells that are no walls."""
    goals: int
    boxes: int
    """As many boxes as goals."""
    player: int
    """Number of the player's cell."""
    certificate: str = "none"
    """What `num_moves` is: `"optimal"`, `"reference"` (some solution) or `"none"` (unknown)."""
    num_moves: int = 0
    """Length of a shortest or of the reference solution, in moves; 0 if none is known."""
    solution: str = ""
    """The reference solution, as letters; empty if the certificate is another."""

    @property
    def stride(self) -> int:
        """The difference between the numbers of a cell and the cell below it."""
        return self.cols + 1


class Run(NamedTuple):
    """What a list of moves did."""

    player: int
    boxes: int
    executed: str
    """The legal moves, in order."""
    num_illegal: int
    num_pushes: int


class Room:
    """The tables that make steps on one level quick; derived from the level alone.

    Attributes:
        level: The level.
        delta: Move -> change of the cell number.
    """

    __slots__ = ("_drawings", "_empty", "delta", "level")

    def __init__(self, level: Level) -> None:
        self.level = level
        self.delta = deltas(level.stride)
        cells = [WALL] * (level.rows * level.stride - 1)
        cells[level.cols :: level.stride] = "\n" * (level.rows - 1)
        for cell in cells_of(level.floor):
            cells[cell] = GOAL if level.goals >> cell & 1 else FLOOR
        self._empty = "".join(cells)
        self._drawings: dict[int, str] = {}

    def text(self, player: int, boxes: int) -> str:
        """Return the board in XSB symbols, one line per row."""
        drawing = self._drawings.get(boxes)
        if drawing is None:
            drawing = self._draw_boxes(boxes)
        symbol = PLAYER_ON_GOAL if self.level.goals >> player & 1 else PLAYER
        return drawing[:player] + symbol + drawing[player + 1 :]

    def _draw_boxes(self, boxes: int) -> str:
        cells = list(self._empty)
        for cell in cells_of(boxes):
            cells[cell] = BOX_ON_GOAL if self.level.goals >> cell & 1 else BOX
        if len(self._drawings) >= 4096:
            self._drawings.clear()
        drawing = self._drawings[boxes] = "".join(cells)
        return drawing


@lru_cache(maxsize=512)
def room_of(level: Level) -> Room:
    """Return the tables of a level."""
    return Room(level)


def step(floor: int, player: int, boxes: int, delta: int) -> tuple[int, int]:
    """Return player and boxes after one move; an illegal move changes nothing.

    Args:
        floor: The cells that are no walls.
        player: Number of the player's cell.
        boxes: The cells with boxes.
        delta: Change of the cell number.
    """
    target = player + delta
    bit = 1 << target
    if boxes & bit:
        beyond = 1 << target + delta
        if beyond & boxes or not beyond & floor:
            return player, boxes
        return target, boxes ^ bit ^ beyond
    return (target, boxes) if bit & floor else (player, boxes)


def run(room: Room, player: int, boxes: int, moves: str) -> Run:
    """Execute moves in order until all boxes are on goals.

    Args:
        room: The level's tables.
        player: Number of the player's cell.
        boxes: The cells with boxes.
        moves: Letters of U D L R; an illegal move changes nothing.
    """
    floor, goals, delta = room.level.floor, room.level.goals, room.delta
    executed, num_illegal, num_pushes = "", 0, 0
    for move in moves:
        if boxes == goals:
            break
        before, boxes_before = player, boxes
        player, boxes = step(floor, player, boxes, delta[move])
        if player == before:
            num_illegal += 1
        else:
            executed += move
            num_pushes += boxes != boxes_before
    return Run(player, boxes, executed, num_illegal, num_pushes)
