"""The potential of a state; the terms that the games share are in `pettingllms_envs.reward`."""

from __future__ import annotations

from pettingllms_envs.reward import shaped
from pettingllms_envs.sokoban.guide import guide_of
from pettingllms_envs.sokoban.rules import Level


def potential(level: Level, player: int, boxes: int) -> float:
    """Return the potential of a state, in [-0.01, 0.1]; see `shaped` and `Guide.distance`."""
    guide = guide_of(level)
    return shaped(guide.distance(player, boxes), guide.start)
