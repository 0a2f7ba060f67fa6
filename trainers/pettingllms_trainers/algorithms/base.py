"""What the built-in algorithms share: values are compared within groups.

Two families differ in what a level is played as: one tree whose decisions have several candidates
(`Branching`), or several episodes with one answer per decision (`WholeEpisodes`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal

from pydantic import Field

from pettingllms_trainers.config.algorithm import Algorithm, Member, StepContext, Strategy
from pettingllms_trainers.config.sections import is_named
from pettingllms_trainers.learning.groups import grpo, leave_one_out
from pettingllms_trainers.rollout.player import Player
from pettingllms_trainers.types import Decision, RolloutTree

Grouping = Literal["agent_turn", "agent", "turn", "none"]
Played = tuple[RolloutTree, Decision]
Groups = Iterable[tuple[Hashable, Member]]
"""Members with the key of the group in which they are compared."""


class GroupRelative(Algorithm):
    """Advantages are values minus a baseline of their group, divided by a deviation."""

    num_candidates: int = Field(default=4, ge=2)
    """K: candidates per decision of a tree, or episodes per level."""
    baseline: Literal["mean", "leave_one_out"] = "mean"
    """What is subtracted: the mean of the group, or of its other members."""
    norm: Literal["std", "batch", "none"] = "std"
    """What divides: the standard deviation of the group (GRPO); batch: that of all groups of the
    step, per role, so that groups with small differences teach little; or nothing (Dr. GRPO)."""

    def advantages(self, values: Sequence[float]) -> list[float]:
        compare = leave_one_out if self.baseline == "leave_one_out" else grpo
        return compare(values, norm=self.norm)

    @property
    def scales_by_batch(self) -> bool:
        return self.norm == "batch"

    @property
    def sees_size(self) -> bool:
        return self.norm == "none"


class Branching(GroupRelative):
    """Episodes whose decisions have K candidates, compared by default within their decision."""

    branching_roles: tuple[str, ...] = ()
    """Roles whose decisions get K candidates; the others get one. Empty: all roles."""
    grouping: Grouping = "agent_turn"
    """Which candidates are compared. agent_turn: those of one decision; ablations: all of an agent,
    or of a turn, of one level, or none: the whole batch."""

    @property
    def episodes_per_level(self) -> int:
        return 1

    @property
    def candidates_per_decision(self) -> int:
        return self.num_candidates

    @property
    def named_roles(self) -> tuple[str, ...]:
        return self.branching_roles

    def branches(self, role: str) -> bool:
        return not self.branching_roles or is_named(self.branching_roles, role)

    def compares(self, role: str) -> bool:
        # Rewards of single candidates are compared with those of other decisions.
        return self.branches(role) or (self.is_by_step and self.grouping != "agent_turn")

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        return members(played, self._key, self._values)

    def _key(self, tree: RolloutTree, decision: Decision) -> Hashable:
        is_by_prompt = self.grouping == "agent_turn"
        return decision.key if is_by_prompt else by_level(self.grouping, tree, decision)

    def _values(self, tree: RolloutTree, decision: Decision) -> Iterable[float]:
        if len(decision.candidates) == 1 and not self.is_by_step:
            return ()  # it has no value, so that it compares with none
        return [candidate.reward + candidate.value for candidate in decision.candidates]


class WholeEpisodes(GroupRelative):
    """K whole episodes per level, each on its own, with one answer per decision."""

    @property
    def episodes_per_level(self) -> int:
        return self.num_candidates

    @property
    def candidates_per_decision(self) -> int:
        return 1

    def branches(self, role: str) -> bool:
        return False

    def strategy(self, context: StepContext) -> Strategy:
        return Alone()


class Alone:
    """Plays an episode on its own, one answer per decision; see `Strategy`."""

    num_together = 1

    async def play(self, players: Sequence[Player]) -> None:
        (player,) = players
        await player.attempt(player.play())


def by_level(grouping: Grouping, tree: RolloutTree, decision: Decision) -> Hashable:
    """The group of a decision among those of the episodes of its level."""
    # The environment's seed stands for the level: episodes of one level share it.
    # Levels of two environments have different seeds, too.
    level, agent, turn = tree.env_seed, decision.key.agent, decision.key.turn
    keys: dict[Grouping, Hashable] = {
        "agent_turn": (level, agent, turn),
        "agent": (level, agent),
        "turn": (level, turn),
        "none": tree.env,
    }
    return keys[grouping]


def members(
    played: Sequence[Played],
    key: Callable[[RolloutTree, Decision], Hashable],
    values: Callable[[RolloutTree, Decision], Iterable[float]],
) -> Groups:
    """Yield every candidate as a member of the group of its decision.

    Args:
        values: The values of a decision's candidates; none: it is not compared.
    """
    for index, (tree, decision) in enumerate(played):
        group = key(tree, decision)
        for candidate, value in enumerate(values(tree, decision)):
            yield group, Member(value, ((index, candidate),))
