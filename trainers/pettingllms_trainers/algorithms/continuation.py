"""Trees whose candidates are valued by what follows when they are played on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.rollout.credit.continuation import ByContinuation
from pettingllms_trainers.rollout.credit.credit import Credit


class Continuation(AtGrpo):
    """The tree of AT-GRPO, compared by reward plus the return of M continuations of each candidate.

    Take it when rewards come late, episodes are short and tokens are cheap: it is unbiased, and
    samples K * M times the rest of the episode at every decision.

    Source:
        VinePPO (arXiv 2410.01679, section 4); for teams C3 (arXiv 2603.06859), with leave-one-out
        and without a deviation. Changed: candidates are whole turns of agents of a team and are
        compared in their group, instead of with a value of the state before them.
    """

    name: str = "continuation"
    """Which algorithm."""
    branch_choice: Literal["greedy", "random", "softmax"] = "random"
    """Candidate an episode continues with: the best, any, or by softmax of reward plus return."""
    num_continuations: int = Field(default=1, ge=1)
    """M: times that every candidate is played on to the end of the episode by the present
    policies."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per decision, of any role, of what follows."""

    def credit(self, moment: Moment) -> Credit:
        """See `AtGrpo.credit`."""
        return ByContinuation(self.num_continuations, self.gamma)

    @property
    def is_by_step(self) -> bool:
        """See `Algorithm.is_by_step`."""
        return False
