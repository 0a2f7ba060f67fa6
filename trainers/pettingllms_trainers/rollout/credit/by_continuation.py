"""Credit `continuation`: what the present policies earn when they play a candidate to its end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from pettingllms.seeding import derive_seed
from pettingllms_trainers.rollout.answers import Answers
from pettingllms_trainers.rollout.credit.seam import Values
from pettingllms_trainers.rollout.episode import Episodes, EpisodeState

__all__ = ["ByContinuation"]


class _Played(NamedTuple):
    value: float
    num_tokens: int


class ByContinuation:
    """The mean discounted return of M continuations of every candidate; see `CreditOfRollout`.

    Continuations of all candidates and of concurrent episodes are sampled together. They are
    counted as sampled tokens, and nothing else of them is kept or trained on.

    Args:
        episodes: Where the environments live; continuations are played in episodes with negative
            ids.
        answers: Asks the policies.
        num_continuations: M, at least 1.
        gamma: Discount per decision.

    Source:
        VinePPO (arXiv 2410.01679, section 4). Changed: candidates are whole turns of agents of a
        team and are compared in their group, instead of with a value of the state before them.
    """

    def __init__(
        self, episodes: Episodes, answers: Answers, num_continuations: int, gamma: float
    ) -> None:
        self._episodes, self._answers = episodes, answers
        self._num, self._gamma = num_continuations, gamma
        self._copies = itertools.count(-1, -1)

    async def of_branches(self, episode: int, num_branches: int, seed: int) -> Values:
        """Return the mean return of the continuations of each branch."""
        plays = [
            asyncio.ensure_future(self._play(episode, index, derive_seed(seed, index, number)))
            for index in range(num_branches)
            for number in range(self._num)
        ]
        try:
            played = await asyncio.gather(*plays)
        finally:
            for play in plays:
                play.cancel()
        starts = range(0, len(played), self._num)
        parts = [played[start : start + self._num] for start in starts]
        values = tuple(sum(p.value for p in part) / self._num for part in parts)
        return Values(values, sum(p.num_tokens for p in played))

    async def of_path(self, situation: EpisodeState, rewards: Sequence[float]) -> float:
        """Return the discounted return of the path: it is a continuation like any other."""
        return sum(reward * self._gamma ** (n + 1) for n, reward in enumerate(rewards))

    async def _play(self, episode: int, index: int, seed: int) -> _Played:
        """Play one branch to its end."""
        copy = next(self._copies)
        total, discount, num_tokens = 0.0, self._gamma, 0
        try:
            situation = await self._episodes.fork(episode, index, copy)
            for number in itertools.count():
                if situation.is_over:
                    return _Played(total, num_tokens)
                answer = await self._answers.sample(copy, situation, 1, derive_seed(seed, number))
                answer, (branch,) = await self._answers.branch(copy, answer)
                situation = await self._episodes.follow(copy, 0)
                total += discount * branch.reward
                discount *= self._gamma
                num_tokens += answer.num_tokens
        finally:
            await self._episodes.close(copy)
        raise AssertionError("unreachable")
