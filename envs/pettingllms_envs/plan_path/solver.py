"""Shortest paths and legal moves."""

from __future__ import annotations

from pettingllms_envs.grid import MOVES, layers
from pettingllms_envs.plan_path.rules import Maze


def shortest_path(maze: Maze, source: int, target: int) -> str | None:
    """Return the moves of a shortest path, or None if there is no path.

    Among several shortest paths it is the first in the order U, D, L, R of moves.

    Args:
        maze: The level's tables.
        source: A free cell.
        target: Any cell of the board.
    """
    if not maze.free >> target & 1:
        return None
    rings: list[int] = []
    for ring in layers(maze.free, 1 << target, maze.level.stride):
        if ring >> source & 1:
            break
        rings.append(ring)
    else:
        return None
    moves = ""
    for ring in reversed(rings):
        for move in MOVES:
            after = source + maze.delta[move]
            if after >= 0 and ring >> after & 1:
                moves += move
                source = after
                break
    return moves


def legal_moves(maze: Maze, position: int) -> str:
    """Return the moves that are legal on a free cell."""
    return "".join(move for move in MOVES if maze.is_open(position, move))
