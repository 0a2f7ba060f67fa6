"""Dr. MAS: returns of episodes, by the mean and the deviation of each agent's own answers."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trainers.algorithms.base import Groups, Played, WholeEpisodes, by_level
from pettingllms_trainers.config.algorithm import Member, StepContext
from pettingllms_trainers.learning.returns import path_returns


class DrMas(WholeEpisodes):
    """K whole episodes; the return of an episode, by the mean and deviation of an agent's answers.

    Take it for comparison with `grpo`, where an episode counts once however often the agent acts.

    Source:
        Dr. MAS (arXiv 2602.08847): advantages are normalised per agent, by the rewards of the steps
        in which it acts, instead of over all agents. Changed: the agent's return, which holds its
        own local rewards, in place of one reward of the team; a deviation of 0 gives no advantage.
    """

    name: str = "dr_mas"
    """Which algorithm."""

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        for index, (tree, decision) in enumerate(played):
            # Once per answer: the mean and deviation are then over steps in which the agent acts.
            value = path_returns(tree, decision.key.agent, 1.0)[0]
            yield by_level("agent", tree, decision), Member(value, ((index, 0),))
