"""Rewards: progress as a potential, a bonus for the goal, and small costs."""

from __future__ import annotations

from typing import NamedTuple

MALFORMED, EMPTY, ILLEGAL = 0.24, 0.2, 0.2
"""What an episode of malformed texts, of empty answers or of illegal moves costs an agent."""

SUCCESS = 1.0
"""The bonus for reaching the goal."""


class Costs(NamedTuple):
    """The costs of one action, all negative."""

    malformed: float
    """For a text without a readable answer."""
    empty: float
    """For an empty list of moves, or a call that is refused."""
    illegal: float
    """For each move into a wall or off the board."""


def costs(max_turns: int, moves_per_turn: int) -> Costs:
    """Return the costs of one action.

    They are scaled so that all costs of an episode add up to more than -0.25 for one agent and more
    than -0.5 for a team of two, whatever it does.

    Args:
        max_turns: Turns of an episode.
        moves_per_turn: Greatest number of moves executed in a turn.
    """
    return Costs(-MALFORMED / max_turns, -EMPTY / max_turns, -ILLEGAL / max_turns / moves_per_turn)


def progress(distance_before: int, distance_after: int, shortest: int) -> float:
    """Return the difference of the potential 1 - distance / shortest.

    Source: potential-based shaping (Ng, Harada, Russell 1999) without discounting, so that every
    closed loop adds up to 0; the distance is that of a breadth-first search, which knows the walls.

    Args:
        distance_before: Moves to the goal before.
        distance_after: Moves to the goal afterwards.
        shortest: Length of the level's shortest path; a solved episode's progress is 1 in all.
    """
    return (distance_before - distance_after) / shortest
