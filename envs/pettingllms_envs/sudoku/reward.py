"""The potential of a grid; the terms that the games share are in `pettingllms_envs.reward`."""

from __future__ import annotations

from pettingllms_envs.reward import PROGRESS
from pettingllms_envs.sudoku.rules import Grid


def potential(grid: Grid) -> float:
    """Return 0.1 * (right fills - wrong fills) / empty cells of the puzzle, in [-0.1, 0.1].

    It is 0 at the start and 0.1 when solved. Differences of it are the team's reward, so that every
    closed loop adds up to 0 and a wrong grid earns less than an empty one. Wrong fills count as
    much as right ones, or guessing would pay.

    Source: potential-based shaping (Ng, Harada, Russell 1999), without discounting.
    """
    _, _, num_empty, num_right, num_wrong = grid
    return PROGRESS * (num_right - num_wrong) / (num_empty + num_right + num_wrong)
