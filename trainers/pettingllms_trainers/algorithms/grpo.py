"""GRPO: whole episodes, compared by what they earned in all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

from pydantic import Field

from pettingllms_trainers.algorithms.group_relative import GroupRelative, Played, by_level
from pettingllms_trainers.config.algorithm import Member, Moment, Strategy
from pettingllms_trainers.learning.returns import path_returns
from pettingllms_trainers.rollout.strategies.alone import Alone


class Grpo(GroupRelative):
    """K whole episodes per level; all answers of an agent get the advantage of its episode.

    Take it for comparison: it is what AT-GRPO is measured against.

    Source:
        GRPO (arXiv 2402.03300, eq. 3) by trajectory, as in Stronger-MAS (arXiv 2510.11062).
        Changed: an episode counts once per agent, whatever its length.
    """

    name: str = "grpo"
    """Which algorithm."""
    grouping: Literal["agent", "none"] = "agent"
    """Whose episodes are compared: those of an agent on one level, or of the whole batch."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per decision, of any role, of what follows."""

    @property
    def episodes_per_level(self) -> int:
        """See `Algorithm.episodes_per_level`."""
        return self.num_candidates

    @property
    def candidates_per_decision(self) -> int:
        """See `Algorithm.candidates_per_decision`."""
        return 1

    def strategy(self, moment: Moment) -> Strategy:
        """See `Algorithm.strategy`."""
        return Alone()

    def groups(self, found: Sequence[Played], moment: Moment) -> Iterable[tuple[Hashable, Member]]:
        """See `Algorithm.groups`: one member per episode and agent."""
        positions: dict[tuple[int, str], list[int]] = defaultdict(list)
        for index, (tree, decision) in enumerate(found):
            positions[tree.episode, decision.key.agent].append(index)
        for (_, agent), indices in positions.items():
            tree, decision = found[indices[0]]
            value = path_returns(tree, agent, self.gamma)[0]
            candidates = tuple(
                (index, number)
                for index in indices
                for number in range(len(found[index][1].candidates))
            )
            yield by_level(self.grouping, tree, decision), Member(value, candidates)
