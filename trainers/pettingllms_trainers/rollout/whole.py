"""Whole episodes first, branches afterwards: depth does not multiply what is sampled."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pettingllms import role_of
from pettingllms_trainers.rollout.episode import EpisodeState
from pettingllms_trainers.rollout.tree import TreeRollout
from pettingllms_trainers.types import TreeOutcome

__all__ = ["WholeRollout"]


class _Step(NamedTuple):
    """A decision of the whole episode, which may branch later."""

    before: EpisodeState
    after: EpisodeState
    copy: int
    """Episode that is kept in the state before it."""


class WholeRollout(TreeRollout):
    """Plays an episode with one answer per decision, and then lets some of its decisions branch.

    `num_branchings` decisions are drawn at random among those of the branching roles. Each gets
    K - 1 further candidates; the answer that was played is the first of its candidates, and what
    followed it is known. The others are valued by the credit: with `continuation` their leaves
    are reached by the present policies, which is Tree-GRPO.

    Source:
        Tree-GRPO (arXiv 2509.21240, section 3). Changed: candidates of one decision are compared
        with each other only; there is no second comparison between trees.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._steps: list[_Step] = []

    async def _play(self) -> TreeOutcome:
        try:
            outcome = await super()._play()
            for position in self._drawn():
                await self._branch(position)
            return outcome
        finally:
            for step in self._steps:
                await self._episodes.close(step.copy)

    async def _decide(self, situation: EpisodeState) -> EpisodeState:
        episode, position = self._spec.episode, len(self._decisions)
        copy = self._copy(position)
        await self._episodes.fork(episode, None, copy)
        self._steps.append(_Step(situation, situation, copy))
        sampled = await self._sampled(situation, position)
        sampled, branches = await self._answers.branch(episode, sampled)
        self._decisions.append(self._decision(position, situation, sampled, branches, (0.0,), 0))
        after = await self._episodes.follow(episode, 0)
        self._steps[-1] = self._steps[-1]._replace(after=after)
        return after

    def _num_sampled(self, agent: str) -> int:
        return 1

    def _copy(self, position: int) -> int:
        """Return an episode id of its own, apart from those of all episodes and continuations."""
        return _FIRST_COPY * (1 + self._spec.episode) - position

    def _drawn(self) -> Sequence[int]:
        roles = self._settings.branching_roles
        possible = [
            index
            for index, decision in enumerate(self._decisions)
            if decision.prompt_ids and (roles is None or role_of(decision.key.agent) in roles)
        ]
        rng = random.Random(self._seed("branchings", 0))
        return sorted(rng.sample(possible, min(self._settings.num_branchings, len(possible))))

    async def _branch(self, position: int) -> None:
        """Give a decision its further candidates."""
        step, played = self._steps[position], self._decisions[position]
        num = self._settings.num_candidates_of(role_of(step.before.agent)) - 1
        seed = self._seed("further", position)
        sampled = await self._answers.sample(step.copy, step.before, num, seed)
        sampled, branches = await self._answers.branch(step.copy, sampled)
        found = await self._credit.of_branches(
            step.copy, len(branches), self._seed("continuation", position)
        )
        rest = [d.candidates[0].reward for d in self._decisions[position + 1 :]]
        own = await self._credit.of_path(step.after, rest)
        self._num_continuation_tokens += found.num_tokens
        further = self._decision(position, step.before, sampled, branches, found.values, 0)
        first = replace(played.candidates[0], value=own)
        self._decisions[position] = replace(played, candidates=(first, *further.candidates))


_FIRST_COPY = -(1 << 32)
"""Continuations count down from -1: their ids are never this small."""
