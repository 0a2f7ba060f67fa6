"""Credit `value`: what V expects at the next decision."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pettingllms import role_of
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.credit.seam import Values
from pettingllms_trainers.rollout.episode import Episodes, EpisodeState

__all__ = ["ByValue"]


class ByValue:
    """``gamma * V(s')``, where s' is the prompt of the agent that acts next; see `CreditOfRollout`.

    V is that of the policy which is to act next: policies of their own have a V of their own, and
    all of them predict the same return, that of the team. Prompts of concurrent episodes are
    evaluated together; nothing is generated.

    Args:
        episodes: Where the environments live.
        pool: Policies of the roles, all with a V.
        gamma: Discount per decision.

    Source:
        A critic without forks: MAPPO (arXiv 2103.01955); baselines from counterfactual actions:
        COMA (arXiv 1705.08926). Changed: forks give real successors of every candidate, so V is
        of states alone, and all candidates of a group are compared by it.
    """

    def __init__(self, episodes: Episodes, pool: PolicyPool, gamma: float) -> None:
        self._episodes, self._pool, self._gamma = episodes, pool, gamma

    async def of_branches(self, episode: int, num_branches: int, seed: int) -> Values:
        """Return the discounted V of the prompts that the branches lead to."""
        situations = await self._episodes.situations(episode)
        return Values(tuple(await asyncio.gather(*map(self._value, situations))))

    async def of_path(self, situation: EpisodeState, rewards: Sequence[float]) -> float:
        """Return the discounted V of the prompt that the candidate led to."""
        return await self._value(situation)

    async def _value(self, situation: EpisodeState) -> float:
        if situation.is_over:
            return 0.0
        policy = self._pool.for_role(role_of(situation.agent))
        assert not isinstance(policy, FixedPolicy), "the configuration refuses fixed policies"
        return self._gamma * await policy.values.of(policy.encode(situation.messages))
