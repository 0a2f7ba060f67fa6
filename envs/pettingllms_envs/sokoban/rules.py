"""The rules of Sokoban on bit-boards: a level, its tables, and what moves do. No reward, no prompt.

Cells are numbered as `pettingllms_envs.grid` says; a set of cells is an int.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from pettingllms_envs.grid import deltas

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


class Walk(NamedTuple):
    """What a list of moves did."""

    player: int
    boxes: int
    executed: str
    """The legal moves, in order."""
    num_illegal: int
    num_pushes: int


deltas_of = cache(deltas)
"""Stride -> change of the cell number by each move; one table per stride."""


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


def run(level: Level, player: int, boxes: int, moves: str) -> Walk:
    """Execute moves in order until all boxes are on goals; see `play`."""
    return Walk._make(play(level, player, boxes, moves))


def play(level: Level, player: int, boxes: int, moves: str) -> tuple[int, int, str, int, int]:
    """Execute moves in order until all boxes are on goals.

    Args:
        level: Floor and goals.
        player: Number of the player's cell.
        boxes: The cells with boxes.
        moves: Letters of U D L R; an illegal move changes nothing.

    Returns:
        The values of a `Walk`, which itself would cost as much as a move.
    """
    floor, goals, delta = level.floor, level.goals, deltas_of(level.cols + 1)
    executed, num_illegal, num_pushes = "", 0, 0
    for move in moves:
        if boxes == goals:
            break
        change = delta[move]  # what follows is `step`, without the call
        target = player + change
        bit = 1 << target
        if boxes & bit:
            beyond = 1 << target + change
            if beyond & boxes or not beyond & floor:
                num_illegal += 1
                continue
            boxes ^= bit ^ beyond
            num_pushes += 1
        elif not bit & floor:
            num_illegal += 1
            continue
        player = target
        executed += move
    return player, boxes, executed, num_illegal, num_pushes
