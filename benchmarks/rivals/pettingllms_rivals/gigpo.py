"""GiGPO: episodes are compared, and answers that were given in one state."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from pettingllms_trainers.algorithms.base import Groups, Played, WholeEpisodes
from pettingllms_trainers.algorithms.grpo import by_episode
from pettingllms_trainers.config.algorithm import Member, StepContext
from pettingllms_trainers.learning.returns import path_returns


class GiGpo(WholeEpisodes):
    """K whole episodes; the advantage of an episode plus that of its answer in its state.

    Take it for comparison with state returns, where episodes of a level meet in states.

    Source:
        GiGPO (arXiv 2505.10978): A = A_E + omega A_S, with A_E of the returns of episodes, and A_S
        of the discounted returns from equal states (anchor states) on. Changed: agents are compared
        with themselves, each by its own rewards and the team part of all; a state is one of a
        moment, so that an episode is in it once.
    """

    name: str = "gigpo"
    """Which algorithm."""
    step_weight: float = Field(default=1.0, ge=0)
    """omega: weight of the comparison in a state beside that of episodes."""
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount per decision, of any role, of what follows an answer; episodes have none."""

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        yield from by_episode(played, "agent", 1.0)
        for index, (tree, decision) in enumerate(played):
            # An anchor state is of a level and an agent: others that meet in it were paid
            # otherwise.
            later = path_returns(tree, decision.key.agent, self.gamma)[decision.key.position]
            state = tree.env_seed, decision.key.agent, "state", decision.state_key
            yield state, Member(later, ((index, 0),), self.step_weight)
