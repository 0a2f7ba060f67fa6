"""Trees whose candidates are valued by a V that is learnt beside the policies."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from statistics import fmean

from pydantic import Field

from pettingllms import role_of
from pettingllms_trainers.algorithms.at_grpo import AtGrpo, Credit, Values, by_reward
from pettingllms_trainers.config.algorithm import StepContext, ValueConfig
from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.rollout.candidates import Candidates
from pettingllms_trainers.rollout.episode import EpisodeState
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
    """Discount of later rewards, per decision of any role."""
    value: ValueConfig = ValueConfig()

    def credit(self, context: StepContext) -> Credit:
        return by_reward if self.value.is_warming_up(context) else ByValue(self.gamma)

    @property
    def is_by_step(self) -> bool:
        return False

    @property
    def sees_size(self) -> bool:
        return True

    @property
    def critic(self) -> ValueConfig:
        return self.value

    def value_examples(
        self, trees: Sequence[RolloutTree], context: StepContext
    ) -> dict[str, list[ValueExample]]:
        weight = 1.0 if self.value.is_warming_up(context) else self.value.path_weight
        return value_examples(trees, gamma=self.gamma, path_weight=weight)


class ByValue:
    """``gamma * V(s')``, where s' is the prompt of the agent that acts next; a `Credit`.

    V is that of the policy which acts next. Every policy has its own V, and all predict the same
    return: the sum of rewards of whoever acts. Prompts of concurrent episodes are evaluated
    together; nothing is generated.

    Args:
        gamma: Discount per decision, in (0, 1].
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma

    async def __call__(
        self, candidates: Candidates, episode: int, num_branches: int, seed: int
    ) -> Values:
        # Prompts of all branches at once: V is a forward pass, and larger batches cost little more.
        states = await candidates.episodes.successors(episode)
        values = await asyncio.gather(
            *(self._value(candidates, state, (seed, index)) for index, state in enumerate(states))
        )
        return Values(tuple(values))

    async def _value(
        self, candidates: Candidates, state: EpisodeState, asked: tuple[int, int]
    ) -> float:
        if state.is_over:
            return 0.0
        policy = candidates.pool.for_role(role_of(state.agent))
        assert not isinstance(policy, FixedPolicy), "the configuration refuses fixed policies"
        ask = partial(policy.values.of, policy.encode(state.messages))
        return self._gamma * await candidates.settings.valuing(("V", *asked), ask)


def value_examples(
    trees: Sequence[RolloutTree], *, gamma: float, path_weight: float
) -> dict[str, list[ValueExample]]:
    """Policy to the examples that its V learns from, in play order.

    The target of a decision is ``(1 - w) * mean_k(r_k + value_k) + w * G``: over its K candidates,
    `value` already holding the discounted V of what follows, and with G the discounted sum of the
    rewards of the acting agents from there to the end of the followed path. The first part is
    unbiased for the policies whichever branch is followed, as far as V is right; the second is of
    what was played, with greedy branches the best of K.

    Args:
        trees: Rollouts of a train step; those that failed are left out.
        gamma: Discount per decision, in (0, 1].
        path_weight: w in [0, 1]; 1 while V is not used yet.

    Raises:
        GroupError: A decision has no chosen candidate.

    Source:
        Ours. The tree backup is that of Precup, Sutton and Singh 2000 with samples of the policy
        instead of its probabilities; the mixture stands for the lambda of TD(lambda).
    """
    examples: dict[str, list[ValueExample]] = defaultdict(list)
    for tree in trees:
        if tree.has_failed:
            continue
        backwards: list[tuple[str, ValueExample]] = []
        path = 0.0
        for decision in reversed(tree.decisions):
            if decision.chosen is None:
                raise GroupError(f"decision {tuple(decision.key)} has no chosen candidate")
            path = decision.candidates[decision.chosen].reward + gamma * path
            backup = fmean(c.reward + c.value for c in decision.candidates)
            # With a single candidate no value was asked for, so that there is no backup.
            weight = path_weight if len(decision.candidates) > 1 else 1.0
            target = (1 - weight) * backup + weight * path
            if decision.prompt_ids:
                backwards.append((decision.policy, ValueExample(decision.prompt_ids, target)))
        for policy, example in reversed(backwards):
            examples[policy].append(example)
    return dict(examples)
