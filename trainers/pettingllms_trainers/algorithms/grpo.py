"""GRPO: whole episodes, compared by what they earned in all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from pettingllms_trainers.algorithms.base import Grouping, Groups, Played, WholeEpisodes, by_level
from pettingllms_trainers.config.algorithm import Member, StepContext
from pettingllms_trainers.learning.returns import path_returns


class Grpo(WholeEpisodes):
    """K whole episodes per level; all answers of an agent get the advantage of its episode.

    Take it for comparison: it is what AT-GRPO is measured against.

    Source:
        GRPO (arXiv 2402.03300, eq. 3) by trajectory, as in Stronger-MAS (arXiv 2510.11062).
        Changed: an episode counts once per agent, whatever its length.
    """

    name: str = "grpo"
    """Which algorithm."""
    grouping: Literal["agent", "none"] = "agent"
    """Which episodes are compared: those of an agent on one level, or of the whole batch."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of later rewards, per decision of any role."""

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        return by_episode(played, self.grouping, self.gamma)


def by_episode(played: Sequence[Played], grouping: Grouping, gamma: float) -> Groups:
    """Yield one member per episode and agent: its return, for all answers of the agent in it.

    Args:
        gamma: Discount per decision, of any role, of what follows.
    """
    positions: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index, (tree, decision) in enumerate(played):
        positions[tree.episode, decision.key.agent].append(index)
    for (_, agent), indices in positions.items():
        tree, decision = played[indices[0]]
        candidates = tuple(
            (index, number)
            for index in indices
            for number in range(len(played[index][1].candidates))
        )
        # One member for all its answers: a long episode counts in the mean as much as a short one.
        value = path_returns(tree, agent, gamma)[0]
        yield by_level(grouping, tree, decision), Member(value, candidates)
