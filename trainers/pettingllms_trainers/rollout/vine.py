"""Episodes of a level that share a beginning: one is played whole, the others fork from it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from pettingllms_trainers.errors import EnvironmentFailure
from pettingllms_trainers.rollout.episode import Episodes, EpisodeState
from pettingllms_trainers.rollout.tree import TreeRollout
from pettingllms_trainers.types import Decision, RolloutStatus, RolloutTree

__all__ = ["ForkRollout", "StemRollout", "Vine"]


class _Place(NamedTuple):
    """A decision of the stem at which the others fork."""

    situation: EpisodeState
    copy: int
    """Episode that is kept in the state before the decision."""
    initial_hash: str
    prefix: tuple[Decision, ...]
    """Decisions of the stem before it."""
    returns: Mapping[str, float]
    """What the stem had earned until then, by agent."""


class Vine:
    """What the stem of a level leaves to its forks.

    Args:
        num_forks: Episodes that will fork from it.
    """

    def __init__(self, num_forks: int) -> None:
        self._num_left = num_forks
        self._is_over = asyncio.Event()
        self.place: _Place | None = None
        """Where the others fork; None when the stem has failed."""

    def finish(self) -> None:
        """Let the forks begin: the stem has been played."""
        self._is_over.set()

    async def enter(self, episodes: Episodes, episode: int) -> _Place:
        """Begin a fork under an id; the copy is closed when all forks have begun.

        Raises:
            EnvironmentFailure: The stem has failed.
        """
        await self._is_over.wait()
        if self.place is None:
            raise EnvironmentFailure("the episode to fork from has failed")
        try:
            await episodes.fork(self.place.copy, None, episode)
        finally:
            self._num_left -= 1
            if not self._num_left:
                await episodes.close(self.place.copy)
        return self.place


class StemRollout(TreeRollout):
    """Plays the first episode of a level to its end, and keeps one decision of it for the others.

    The decision is drawn among all that it had, each with the same probability.
    """

    def __init__(self, vine: Vine, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._vine = vine

    async def play(self) -> RolloutTree:
        """See `TreeRollout.play`."""
        tree = await super().play()
        if tree.status is not RolloutStatus.OK:
            await self._drop()
        self._vine.finish()
        return tree

    async def _decide(self, situation: EpisodeState) -> EpisodeState:
        # A reservoir of one: the number of decisions is not known before the end.
        position = len(self._decisions)
        if not random.Random(self._seed("fork", position)).randrange(position + 1):
            await self._drop()
            copy = _FIRST_COPY - self._spec.episode
            await self._episodes.fork(self._spec.episode, None, copy)
            prefix, returns = tuple(self._decisions), dict(self._returns)
            self._vine.place = _Place(situation, copy, self._initial_hash, prefix, returns)
        return await super()._decide(situation)

    async def _drop(self) -> None:
        if self._vine.place is not None:
            await self._episodes.close(self._vine.place.copy)
            self._vine.place = None


class ForkRollout(TreeRollout):
    """Plays on from a decision of the stem of its level.

    Its decisions are those from there on, with those before as its prefix; its returns and its
    outcome are those of the whole episode.

    Source:
        The vine procedure of TRPO (arXiv 1502.05477, section 5.2). Changed: all decisions of a fork
        are trained on, not the first alone, and the stem is one of the episodes that are compared.
        As its decision is drawn among those that it had, the rest of a short stem counts for a
        little more than that of a long one.
    """

    def __init__(self, vine: Vine, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._vine = vine

    async def _begin(self) -> EpisodeState:
        place = await self._vine.enter(self._episodes, self._spec.episode)
        self._initial_hash, self._returns = place.initial_hash, dict(place.returns)
        self._prefix = place.prefix
        return place.situation


_FIRST_COPY = -(1 << 32)
"""Continuations count down from -1: their ids are never this small."""
