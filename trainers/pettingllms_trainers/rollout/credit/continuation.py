"""Credit by continuation: what the present policies earn when they play a candidate to its end."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from pettingllms.seeding import derive_seed
from pettingllms_trainers.rollout.candidates import Candidates
from pettingllms_trainers.rollout.credit.credit import Values
from pettingllms_trainers.rollout.together import together


class _Played(NamedTuple):
    value: float
    num_tokens: int


class ByContinuation:
    """The mean discounted return of M continuations of every candidate; see `Credit`.

    Continuations of all candidates and of concurrent episodes are sampled together. They are
    counted as sampled tokens, and nothing else of them is kept or trained on.

    Args:
        num_continuations: M, at least 1.
        gamma: Discount per decision.

    Source:
        VinePPO (arXiv 2410.01679, section 4). Changed: candidates are whole turns of agents of a
        team and are compared in their group, instead of with a value of the state before them.
    """

    def __init__(self, num_continuations: int, gamma: float) -> None:
        self._num, self._gamma = num_continuations, gamma

    async def of_branches(
        self, candidates: Candidates, episode: int, num_branches: int, seed: int
    ) -> Values:
        """Return the mean return of the continuations of each branch."""
        played = await together(
            self._play(candidates, episode, index, derive_seed(seed, index, number))
            for index in range(num_branches)
            for number in range(self._num)
        )
        starts = range(0, len(played), self._num)
        parts = [played[start : start + self._num] for start in starts]
        values = tuple(sum(p.value for p in part) / self._num for part in parts)
        return Values(values, sum(p.num_tokens for p in played))

    def of_path(self, rewards: Sequence[float]) -> float:
        """Return the discounted return of what was played: a continuation like any other.

        Args:
            rewards: Those of the agents that acted afterwards, in order, to the end.
        """
        return sum(reward * self._gamma ** (n + 1) for n, reward in enumerate(rewards))

    async def _play(self, candidates: Candidates, episode: int, index: int, seed: int) -> _Played:
        """Play one branch to its end."""
        total, discount, num_tokens = 0.0, self._gamma, 0
        copy, state = await candidates.episodes.fork(episode, index)
        try:
            for number in itertools.count():
                if state.is_over:
                    break
                answer = await candidates.sample(copy, state, 1, derive_seed(seed, number))
                answer, (branch,) = await candidates.branch(copy, answer)
                state = await candidates.episodes.follow(copy, 0)
                total += discount * branch.reward
                discount *= self._gamma
                num_tokens += answer.num_tokens
        finally:
            await candidates.episodes.close(copy)
        return _Played(total, num_tokens)
