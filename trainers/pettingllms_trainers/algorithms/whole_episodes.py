"""What algorithms have in common that play K whole episodes of every level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from pettingllms_trainers.algorithms.group_relative import (
    Grouping,
    GroupRelative,
    Played,
    by_level,
)
from pettingllms_trainers.config.algorithm import Member, Moment, Strategy
from pettingllms_trainers.learning.returns import path_returns
from pettingllms_trainers.rollout.strategies.alone import Alone


class WholeEpisodes(GroupRelative):
    """K whole episodes per level, each on its own, with one answer per decision."""

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


def by_episode(
    found: Sequence[Played], grouping: Grouping, gamma: float
) -> Iterable[tuple[Hashable, Member]]:
    """Yield one member per episode and agent: its return, for all answers of the agent in it.

    Args:
        found: [D] decisions with their trees.
        grouping: Whose episodes are compared.
        gamma: Discount per decision, of any role, of what follows.
    """
    positions: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index, (tree, decision) in enumerate(found):
        positions[tree.episode, decision.key.agent].append(index)
    for (_, agent), indices in positions.items():
        tree, decision = found[indices[0]]
        candidates = tuple(
            (index, number)
            for index in indices
            for number in range(len(found[index][1].candidates))
        )
        value = path_returns(tree, agent, gamma)[0]
        yield by_level(grouping, tree, decision), Member(value, candidates)
