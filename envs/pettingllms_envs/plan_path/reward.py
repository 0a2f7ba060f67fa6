"""The potential of a state; the terms that the games share are in `pettingllms_envs.reward`."""

from __future__ import annotations

from pettingllms_envs.plan_path.rules import Maze
from pettingllms_envs.reward import shaped


def potential(maze: Maze, position: int) -> float:
    """Return the potential of a player's cell, in [-0.01, 0.1]; see `shaped`.

    The distance is that of a breadth-first search, which knows the walls.
    """
    return shaped(maze.to_goal[position], maze.level.shortest)
