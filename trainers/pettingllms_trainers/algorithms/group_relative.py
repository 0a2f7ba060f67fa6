"""What the built-in algorithms have in common: values are compared within groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal

from pydantic import Field

from pettingllms_trainers.config.algorithm import Algorithm, Member
from pettingllms_trainers.learning.advantage import grpo, leave_one_out
from pettingllms_trainers.types import Decision, RolloutTree

Grouping = Literal["agent_turn", "agent", "turn", "none"]
Played = tuple[RolloutTree, Decision]


class GroupRelative(Algorithm):
    """Advantages are values minus what their group has, divided by how far it is spread."""

    num_candidates: int = Field(default=4, ge=2)
    """K: candidates per decision of a tree, or episodes per level."""
    baseline: Literal["mean", "leave_one_out"] = "mean"
    """What is subtracted: the mean of the group, or of the other members."""
    norm: Literal["std", "batch", "none"] = "std"
    """What divides: the standard deviation of the group (GRPO); batch: that of all groups of the
    step, per role, so that groups with little between their candidates teach little; or nothing
    (Dr. GRPO)."""

    def advantages(self, values: Sequence[float]) -> list[float]:
        """See `Algorithm.advantages`."""
        compare = leave_one_out if self.baseline == "leave_one_out" else grpo
        return compare(values, norm=self.norm)

    @property
    def scales_by_batch(self) -> bool:
        """See `Algorithm.scales_by_batch`."""
        return self.norm == "batch"

    @property
    def sees_size(self) -> bool:
        """See `Algorithm.sees_size`."""
        return self.norm == "none"


def by_level(grouping: Grouping, tree: RolloutTree, decision: Decision) -> Hashable:
    """Return the group of a decision among those of the episodes of its level."""
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
    found: Sequence[Played],
    key: Callable[[RolloutTree, Decision], Hashable],
    values: Callable[[RolloutTree, Decision], Iterable[float]],
) -> Iterable[tuple[Hashable, Member]]:
    """Yield every candidate as a member of the group of its decision.

    Args:
        found: [D] decisions with their trees.
        key: The group of a decision.
        values: The values of a decision's candidates; none: it is not compared.
    """
    for index, (tree, decision) in enumerate(found):
        group = key(tree, decision)
        for candidate, value in enumerate(values(tree, decision)):
            yield group, Member(value, ((index, candidate),))
