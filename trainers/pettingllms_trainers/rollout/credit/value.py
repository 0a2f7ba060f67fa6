"""Credit by value: what V expects at the next decision."""

from __future__ import annotations

import asyncio
from functools import partial

from pettingllms import role_of
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.rollout.candidates import Candidates
from pettingllms_trainers.rollout.credit.credit import Values
from pettingllms_trainers.rollout.episode import EpisodeState


class ByValue:
    """``gamma * V(s')``, where s' is the prompt of the agent that acts next; see `Credit`.

    V is that of the policy which is to act next: policies of their own have a V of their own, and
    all of them predict the same return, that of the team. Prompts of concurrent episodes are
    evaluated together; nothing is generated.

    Args:
        gamma: Discount per decision.

    Source:
        A critic without forks: MAPPO (arXiv 2103.01955); baselines from counterfactual actions:
        COMA (arXiv 1705.08926). Changed: forks give real successors of every candidate, so V is
        of states alone, and all candidates of a group are compared by it.
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma

    async def of_branches(
        self, candidates: Candidates, episode: int, num_branches: int, seed: int
    ) -> Values:
        """Return the discounted V of the prompts that the branches lead to."""
        states = await candidates.episodes.successors(episode)
        found = await asyncio.gather(
            *(self._value(candidates, state, (seed, index)) for index, state in enumerate(states))
        )
        return Values(tuple(found))

    async def _value(
        self, candidates: Candidates, state: EpisodeState, asked: tuple[int, int]
    ) -> float:
        if state.is_over:
            return 0.0
        policy = candidates.pool.for_role(role_of(state.agent))
        assert not isinstance(policy, FixedPolicy), "the configuration refuses fixed policies"
        ask = partial(policy.values.of, policy.encode(state.messages))
        return self._gamma * await candidates.settings.valuing(("V", *asked), ask)
