"""Rewards: a potential that counts right fills against wrong ones, a bonus, and small costs."""

from __future__ import annotations

from pettingllms_envs.sudoku.generator import Puzzle
from pettingllms_envs.sudoku.rules import Grid

MALFORMED, EMPTY, REFUSED = 0.24, 0.2, 0.2
"""What an episode of unreadable texts, of empty answers, or of refused fills costs an agent."""

SUCCESS = 1.0
"""The bonus for the solved puzzle."""


def potential(puzzle: Puzzle, grid: Grid) -> float:
    """Return (right fills - wrong fills) / empty cells of the puzzle, in [-1, 1].

    It is 0 at the start and 1 when solved. Differences of it are the team's reward, so that every
    closed loop adds up to 0 and a wrong grid earns less than an empty one.

    Source: potential-based shaping (Ng, Harada, Russell 1999), without discounting.
    """
    return (grid.num_right - grid.num_wrong) / puzzle.clues.count(0)
