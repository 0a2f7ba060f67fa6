"""HGPO: answers given in one state are compared the more, the longer a past they share."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from pettingllms_trainers.algorithms.base import Groups, Played, WholeEpisodes
from pettingllms_trainers.config.algorithm import Member, StepContext
from pettingllms_trainers.learning.returns import path_returns


class Hgpo(WholeEpisodes):
    """K whole episodes; an answer is compared in nested groups of equal states and equal pasts.

    Take it for comparison with `gigpo`, where equal states have different histories.

    Source:
        HGPO (arXiv 2602.22817): groups k = 0..H of decisions whose state and the k states before it
        are equal, and the sum of their advantages with weights that grow with k. Computed here:
        discounted returns from there on, divided by the deviation of each group, and weights
        (k + 1)^alpha / sum over k. Changed: a state is one of a moment; agents are compared with
        themselves, and episodes not as a whole.
    """

    name: str = "hgpo"
    """Which algorithm."""
    history: int = Field(default=2, ge=0)
    """H: states before the present one that the innermost group shares."""
    alpha: float = Field(default=1.0, ge=0)
    """How much more inner groups count; 0: all alike."""
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount per decision, of any role, of what follows."""

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        weights = [(k + 1) ** self.alpha for k in range(self.history + 1)]
        for index, (tree, decision) in enumerate(played):
            end = decision.key.position + 1
            # The past is what led here, this state included; k = 0 is the plain group of GiGPO.
            states = [one.state_key for one in tree.decisions[:end]]
            later = path_returns(tree, decision.key.agent, self.gamma)[end - 1]
            for k, weight in enumerate(weights):
                key = tree.env_seed, decision.key.agent, k, tuple(states[-1 - k :])
                yield key, Member(later, ((index, 0),), weight / sum(weights))
