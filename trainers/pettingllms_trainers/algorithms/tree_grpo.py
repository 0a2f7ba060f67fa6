"""Tree-GRPO: whole episodes, some of whose decisions branch afterwards."""

from __future__ import annotations

from pydantic import Field

from pettingllms_trainers.algorithms.branching import Branching
from pettingllms_trainers.config.algorithm import Moment, Strategy
from pettingllms_trainers.rollout.credit.continuation import ByContinuation
from pettingllms_trainers.rollout.strategies.branchings import Branchings


class TreeGrpo(Branching):
    """A whole episode, then K - 1 further candidates for some of its decisions, each played on.

    Take it when rewards come late and episodes are long: what is sampled does not grow with K times
    the depth.

    Source:
        Tree-GRPO (arXiv 2509.21240, section 3). Changed: candidates of one decision are compared
        with each other only; there is no second comparison between trees.
    """

    name: str = "tree_grpo"
    """Which algorithm."""
    num_branchings: int = Field(default=2, ge=1)
    """Decisions of an episode, drawn at random, that get K - 1 further candidates."""
    num_continuations: int = Field(default=1, ge=1)
    """M: times that every further candidate is played on to the end of the episode by the present
    policies."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per decision, of any role, of what follows."""

    @property
    def usual_candidates(self) -> int:
        """See `Algorithm.usual_candidates`."""
        return 1

    def strategy(self, moment: Moment) -> Strategy:
        """See `Algorithm.strategy`."""
        credit = ByContinuation(self.num_continuations, self.gamma)
        return Branchings(self.num_candidates, self.num_branchings, credit)
