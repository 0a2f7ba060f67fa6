"""AT-GRPO: the algorithm of Stronger-MAS."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pettingllms_trainers.algorithms.branching import Branching
from pettingllms_trainers.config.algorithm import Moment, Strategy
from pettingllms_trainers.rollout.credit.credit import ByReward, Credit
from pettingllms_trainers.rollout.strategies.tree import Tree


class AtGrpo(Branching):
    """A tree with K candidates at every decision, compared by the reward of their own step.

    Take it when every step is rewarded in line with the outcome.

    Source:
        Stronger-MAS (arXiv 2510.11062), algorithm 1. Changed: groups without spread give exact
        zeros, so that nothing is added to the divisor; see `algorithm.advantage`.
    """

    name: str = "at_grpo"
    """Which algorithm."""
    branch_choice: Literal["greedy", "random", "softmax"] = "greedy"
    """Candidate an episode continues with: the best (the paper), any, or by softmax of rewards."""
    branch_temperature: float = Field(default=1.0, gt=0)
    """Divides the rewards in softmax branch_choice."""

    def strategy(self, moment: Moment) -> Strategy:
        """See `Algorithm.strategy`."""
        return Tree(
            self.num_candidates, self.credit(moment), self.branch_choice, self.branch_temperature
        )

    def credit(self, moment: Moment) -> Credit:
        """Return what finds out what follows a candidate beyond its reward."""
        return ByReward()

    @property
    def is_by_step(self) -> bool:
        """See `Algorithm.is_by_step`."""
        return True

    @property
    def sees_size(self) -> bool:
        """See `Algorithm.sees_size`."""
        return super().sees_size or self.branch_choice == "softmax"
