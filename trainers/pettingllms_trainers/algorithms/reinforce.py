"""REINFORCE on whole episodes, with the other episodes of the level as the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from pettingllms_trainers.algorithms.base import (
    Grouping,
    Groups,
    Played,
    WholeEpisodes,
    by_level,
    members,
)
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.config.sections import CountsWith
from pettingllms_trainers.learning.returns import path_returns
from pettingllms_trainers.types import Decision, RolloutTree


class Reinforce(WholeEpisodes):
    """K whole episodes per level; an answer is compared by what was earned from there on.

    Take it when only the outcome of an episode is rewarded.

    Source:
        REINFORCE (Williams 1992) with the other samples as the baseline (RLOO, arXiv 2402.14740),
        of an agent's answers at one turn; the scale of the batch as in REINFORCE++-baseline (arXiv
        2501.03262). With `credit = "step"` it is the parallel sampling that Stronger-MAS (arXiv
        2510.11062) compares AT-GRPO with. Changed: an agent is credited with the team part of all
        rewards, and with its own local ones.
    """

    name: str = "reinforce"
    """Which algorithm."""
    norm: Literal["std", "batch", "none"] = "batch"
    """What divides: the standard deviation of all groups of the step, per role (batch), so that
    groups with small differences teach little; that of the group (std); or nothing."""
    grouping: Grouping = "agent_turn"
    """Which answers of one level are compared: those of an agent at a turn; ablations: all of an
    agent, or of a turn; none: those of the whole batch."""
    credit: Literal["return_to_go", "success", "step"] = "return_to_go"
    """What is compared: the return from there on; success: whether the level was solved, whatever
    else is paid; step: the reward of the step itself."""
    gamma: Annotated[float, CountsWith('credit = "return_to_go"')] = Field(default=1.0, gt=0, le=1)
    """Discount of later rewards, per decision of any role."""

    @property
    def is_by_step(self) -> bool:
        return self.credit == "step"

    @property
    def trusts_rewards(self) -> bool:
        return self.credit != "success"

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        of_path: dict[tuple[int, str], Sequence[float]] = {}

        def values(tree: RolloutTree, decision: Decision) -> list[float]:
            if self.credit == "success":
                return [float(tree.outcome is not None and tree.outcome.success)]
            if self.credit == "step":
                return [candidate.reward for candidate in decision.candidates]
            # Once per episode and agent, or long episodes take the square of their length.
            who = tree.episode, decision.key.agent
            if who not in of_path:
                of_path[who] = path_returns(tree, decision.key.agent, self.gamma)
            return [of_path[who][decision.key.position]] * len(decision.candidates)

        return members(played, lambda tree, own: by_level(self.grouping, tree, own), values)
