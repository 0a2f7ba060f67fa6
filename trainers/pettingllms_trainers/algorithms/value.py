"""Trees whose candidates are valued by a V that is learnt beside the policies."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.config.algorithm import Moment, ValueConfig
from pettingllms_trainers.learning.targets import value_examples
from pettingllms_trainers.rollout.credit.credit import ByReward, Credit
from pettingllms_trainers.rollout.credit.value import ByValue
from pettingllms_trainers.types import RolloutTree, ValueExample


class Value(AtGrpo):
    """The tree of AT-GRPO, compared by reward plus V of the prompt that comes next.

    Take it when rewards come late and V can be learnt: watch `value/POLICY/r2`, the share of the
    variance of returns that V explains.

    Source:
        A critic without forks: MAPPO (arXiv 2103.01955); baselines from counterfactual actions:
        COMA (arXiv 1705.08926). Changed: forks give real successors of every candidate, so V is of
        states alone, and all candidates of a group are compared by it.
    """

    name: str = "value"
    """Which algorithm."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per decision, of any role, of what follows."""
    value: ValueConfig = ValueConfig()

    def credit(self, moment: Moment) -> Credit:
        """See `AtGrpo.credit`."""
        return ByReward() if self.value.is_warming_up(moment) else ByValue(self.gamma)

    @property
    def is_by_step(self) -> bool:
        """See `Algorithm.is_by_step`."""
        return False

    @property
    def sees_size(self) -> bool:
        """See `Algorithm.sees_size`."""
        return True

    @property
    def critic(self) -> ValueConfig:
        """See `Algorithm.critic`."""
        return self.value

    def value_examples(
        self, trees: Sequence[RolloutTree], moment: Moment
    ) -> dict[str, list[ValueExample]]:
        """See `Algorithm.value_examples`."""
        weight = 1.0 if self.value.is_warming_up(moment) else self.value.path_weight
        return value_examples(trees, gamma=self.gamma, path_weight=weight)
