"""What algorithms have in common whose decisions have several candidates."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from pettingllms_trainers.algorithms.group_relative import (
    Grouping,
    GroupRelative,
    Played,
    by_level,
    members,
)
from pettingllms_trainers.config.algorithm import Member, Moment
from pettingllms_trainers.config.roles import is_named
from pettingllms_trainers.types import Decision, RolloutTree


class Branching(GroupRelative):
    """The K candidates of a decision, which answer one prompt, are compared with each other."""

    branching_roles: tuple[str, ...] = ()
    """Roles whose decisions have K candidates, those of others one; empty: all roles."""
    grouping: Grouping = "agent_turn"
    """Who is compared: agent_turn: the candidates of one decision; ablations: all of an agent, or
    of a turn, of one level, or none: the whole batch."""

    @property
    def episodes_per_level(self) -> int:
        """See `Algorithm.episodes_per_level`."""
        return 1

    @property
    def candidates_per_decision(self) -> int:
        """See `Algorithm.candidates_per_decision`."""
        return self.num_candidates

    @property
    def named_roles(self) -> tuple[str, ...]:
        """See `Algorithm.named_roles`."""
        return self.branching_roles

    def branches(self, role: str) -> bool:
        """See `Algorithm.branches`."""
        return not self.branching_roles or is_named(self.branching_roles, role)

    def compares(self, role: str) -> bool:
        """See `Algorithm.compares`."""
        # Rewards of single candidates are compared with those of other decisions.
        return self.branches(role) or (self.is_by_step and self.grouping != "agent_turn")

    def groups(self, found: Sequence[Played], moment: Moment) -> Iterable[tuple[Hashable, Member]]:
        """See `Algorithm.groups`."""
        return members(found, self._key, self._values)

    def _key(self, tree: RolloutTree, decision: Decision) -> Hashable:
        is_by_prompt = self.grouping == "agent_turn"
        return decision.key if is_by_prompt else by_level(self.grouping, tree, decision)

    def _values(self, tree: RolloutTree, decision: Decision) -> Iterable[float]:
        if len(decision.candidates) == 1 and not self.is_by_step:
            return ()  # nobody asked what follows it, so that it compares with none
        return [candidate.reward + candidate.value for candidate in decision.candidates]
