"""Which levels can be certified, and how."""

from __future__ import annotations

from math import comb

from pettingllms.errors import LevelFormatError
from pettingllms_envs.sokoban.guide import guide_of
from pettingllms_envs.sokoban.rules import Level
from pettingllms_envs.sokoban.search import NODE_LIMIT, solve

EXACT_PLACEMENTS = 8_000
"""Levels with at most this many placements of boxes are always certified as optimal: all of up
to 8x8 with 3 boxes, 16x16 with 1 box."""


def is_small(num_cells: int, num_boxes: int) -> bool:
    """Return whether levels of so many floor cells and boxes are always certified as optimal."""
    return comb(num_cells, num_boxes) <= EXACT_PLACEMENTS


def certify(level: Level, node_limit: int = NODE_LIMIT) -> Level:
    """Return the level with the certificate `"optimal"` and its exact shortest length.

    Args:
        level: Any level.
        node_limit: Maximum number of search nodes; the default decides every small level
            (`is_small`) and most Boxoban levels.

    Raises:
        LevelFormatError: If the level has no solution.
        UnreachableRequest: If the search did not end within the node limit.
    """
    solution = solve(level, level.player, level.boxes, guide_of(level).alive, node_limit)
    if solution is None:
        raise LevelFormatError("the level has no solution", allowed="levels that can be solved")
    return level._replace(certificate="optimal", num_moves=len(solution))
