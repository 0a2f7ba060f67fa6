"""Rewards: progress as a potential, a bonus for the solved level, and small costs."""

from __future__ import annotations

from typing import NamedTuple

from pettingllms_envs.sokoban.guide import guide_of
from pettingllms_envs.sokoban.rules import Level

MALFORMED, EMPTY, ILLEGAL = 0.24, 0.2, 0.2
"""What an episode of unreadable texts, of empty answers, or of illegal moves costs an agent."""

SUCCESS = 1.0
"""The bonus for the solved level."""


class Costs(NamedTuple):
    """The costs of one action, all negative."""

    malformed: float
    """For a text without a readable answer, or a program that fails."""
    empty: float
    """For an empty list of moves, or calls that are all refused."""
    illegal: float
    """For each illegal move."""


def costs(max_turns: int, moves_per_turn: int) -> Costs:
    """Return the costs of one action; those of an episode add up to more than -0.25 per agent."""
    return Costs(-MALFORMED / max_turns, -EMPTY / max_turns, -ILLEGAL / max_turns / moves_per_turn)


def potential(level: Level, player: int, boxes: int) -> float:
    """Return the potential of a state, in [-1, 1]; see `shaped`."""
    guide = guide_of(level)
    return shaped(guide.distance(player, boxes), guide.start)


def shaped(distance: float, start: float) -> float:
    """Return the potential at a distance d from solved (`Guide.distance`), in [-1, 1].

    With d0 the distance of the first state: 1 - d / d0 while d <= d0, d0 / d - 1 (between -1 and 0)
    beyond it, and -1 if the level is certainly lost. It is 0 at the start and 1 when solved. The
    team's reward is its difference, undiscounted, so that every closed loop adds up to 0.

    Args:
        distance: d, negative if the level is certainly lost.
        start: d0, positive.

    Source: potential-based shaping (Ng, Harada, Russell 1999).
    """
    if distance < 0:
        return -1.0
    return 1 - distance / start if distance <= start else start / distance - 1
