"""Whole episodes that share a beginning."""

from __future__ import annotations

from typing import Literal

from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.config.algorithm import Moment, Strategy
from pettingllms_trainers.rollout.strategies.stem_and_forks import StemAndForks


class Vine(Reinforce):
    """A whole episode and K - 1 that fork from one of its decisions, drawn at random.

    Take it for comparison with whole episodes: by the outcome it was level with them or behind in
    the project's own study.

    Source:
        The vine procedure of TRPO (arXiv 1502.05477, section 5.2). Changed: all decisions of a fork
        are trained on, not the first alone, and the stem is one of the episodes that are compared.
    """

    name: str = "vine"
    """Which algorithm."""
    credit: Literal["return_to_go", "step"] = "return_to_go"
    """By what: the return from there on, or the reward of the own step. Those that fork have not
    earned what came before."""

    def strategy(self, moment: Moment) -> Strategy:
        """See `Algorithm.strategy`."""
        return StemAndForks(self.num_candidates)
