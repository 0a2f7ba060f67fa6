"""Episodes of a level side by side: as soon as one has earned more, the others continue from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from pettingllms_trainers.algorithm.advantage import has_signal
from pettingllms_trainers.errors import EnvironmentFailure
from pettingllms_trainers.rollout.episode import EpisodeState
from pettingllms_trainers.rollout.tree import TreeRollout
from pettingllms_trainers.types import Decision, RolloutTree

__all__ = ["Lockstep", "LockstepRollout"]


class _Waiting(NamedTuple):
    """An episode that has acted and waits for the others."""

    rollout: LockstepRollout
    situation: EpisodeState
    next_situation: asyncio.Future[EpisodeState]


class Lockstep:
    """Lets the episodes of one level take their decisions together.

    Args:
        num_episodes: Episodes that begin.
    """

    def __init__(self, num_episodes: int) -> None:
        self._num_playing = num_episodes
        self._waiting: list[_Waiting] = []

    async def meet(self, rollout: LockstepRollout, situation: EpisodeState) -> EpisodeState:
        """Wait until all that still play have acted; return where the episode continues.

        Args:
            rollout: The episode.
            situation: Where it is.

        Raises:
            EnvironmentFailure: The episode cannot continue there.
        """
        future: asyncio.Future[EpisodeState] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(rollout, situation, future))
        await self._continue_if_all_wait()
        return await future

    async def leave(self) -> None:
        """End an episode: the others do not wait for it any more."""
        self._num_playing -= 1
        await self._continue_if_all_wait()

    async def _continue_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._num_playing:
            return
        # In the order of the episodes: who arrives first depends on the engines.
        waiting = sorted(self._waiting, key=lambda one: one.rollout.episode)
        self._waiting = []
        earned = [one.rollout.earned for one in waiting]
        # Within a stage, agents have been asked about the moment before it.
        is_within_stage = any(one.rollout.is_within_stage for one in waiting)
        if is_within_stage or not has_signal(earned):
            for one in waiting:
                one.next_situation.set_result(one.situation)
            return
        best = waiting[earned.index(max(earned))]
        await asyncio.gather(*(_move(one, best.rollout) for one in waiting if one is not best))
        best.rollout.begin_stretch()
        best.next_situation.set_result(best.situation)


async def _move(waiting: _Waiting, best: LockstepRollout) -> None:
    """Let an episode continue from the best; if its environment fails, it alone fails."""
    try:
        waiting.next_situation.set_result(await waiting.rollout.continue_from(best))
    except EnvironmentFailure as error:
        waiting.next_situation.set_exception(error)


class LockstepRollout(TreeRollout):
    """Plays one of the episodes of a level that take their decisions together.

    Whenever those that still play have earned different amounts since they were last in one state,
    all of them continue from the state of the best. So a reward of every step makes of them a tree
    that follows its best candidate, as AT-GRPO does; and if nothing is paid before the end, they
    are whole episodes that nobody interrupts. Those that are over stay as they are.

    Source:
        Go with the winners (Aldous and Vazirani, FOCS 1994), and AT-GRPO (arXiv 2510.11062,
        algorithm 1) for which of them is followed. Changed: nobody continues from another unless
        the rewards tell them apart.
    """

    def __init__(self, lockstep: Lockstep, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lockstep = lockstep
        self._first_of_stretch = 0

    @property
    def episode(self) -> int:
        """Episode id."""
        return self._spec.episode

    @property
    def earned(self) -> float:
        """What those who acted have earned since the episodes were last in one state."""
        stretch = self._decisions[self._first_of_stretch :]
        return sum(decision.candidates[0].reward for decision in stretch)

    @property
    def is_within_stage(self) -> bool:
        """Whether an agent has been asked whose turn has not come."""
        return bool(self._asked)

    @property
    def path(self) -> tuple[Decision, ...]:
        """The decisions that led to its state."""
        return (*self._prefix, *self._decisions[self._num_given_up :])

    @property
    def returns(self) -> Mapping[str, float]:
        """What was earned on that path, by agent."""
        return self._returns

    def begin_stretch(self) -> None:
        """Count from here what is earned: all that play are in one state."""
        self._first_of_stretch = len(self._decisions)

    async def continue_from(self, best: LockstepRollout) -> EpisodeState:
        """Give up the own state for that of another episode, and return it."""
        self.begin_stretch()
        await self._episodes.close(self.episode)
        situation = await self._episodes.fork(best.episode, None, self.episode)
        self._prefix, self._returns = best.path, dict(best.returns)
        self._num_given_up = len(self._decisions)
        return situation

    async def play(self) -> RolloutTree:
        """See `TreeRollout.play`."""
        try:
            return await super().play()
        finally:
            await self._lockstep.leave()

    async def _arrive(self, situation: EpisodeState) -> EpisodeState:
        return await self._lockstep.meet(self, situation)
