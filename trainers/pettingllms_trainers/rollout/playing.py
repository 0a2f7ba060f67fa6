"""All episodes of a train step or an evaluation, played at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.answers import Answers
from pettingllms_trainers.rollout.credit.choice import credit_of
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.lockstep import Lockstep, LockstepRollout
from pettingllms_trainers.rollout.settings import RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.tree import TreeRollout
from pettingllms_trainers.rollout.vine import ForkRollout, StemRollout, Vine
from pettingllms_trainers.rollout.whole import WholeRollout
from pettingllms_trainers.types import RolloutStatus, RolloutTree

__all__ = ["Play", "play_all", "play_episodes"]


class Play(NamedTuple):
    """Episodes of one environment."""

    episodes: Episodes
    """Where the environment lives."""
    pool: PolicyPool
    """Policies of its roles."""
    specs: Sequence[RolloutSpec]
    """Episodes to play."""
    settings: RolloutSettings
    """How to sample."""


async def play_episodes(
    episodes: Episodes,
    pool: PolicyPool,
    specs: Sequence[RolloutSpec],
    settings: RolloutSettings,
    failures: FailureLog,
) -> list[RolloutTree]:
    """Play episodes of one environment; see `play_all`.

    Args:
        episodes: Where the environments live.
        pool: Policies of the roles.
        specs: Episodes to play.
        settings: How to sample.
        failures: Counts and logs what fails.
    """
    return await play_all([Play(episodes, pool, specs, settings)], failures, pool.ranks)


async def play_all(plays: Sequence[Play], failures: FailureLog, ranks: Ranks) -> list[RolloutTree]:
    """Play all episodes at once, so that the engines see big batches; every rank plays its share.

    Args:
        plays: Episodes of each environment; their ids are different.
        failures: Counts and logs what fails.
        ranks: The processes that play together.

    Returns:
        One tree per episode, in order; a failed one has its status and cause.

    Raises:
        RolloutError: More trees or candidates failed than allowed.
    """
    answers = [
        Answers(play.episodes, play.pool, play.settings.sampling, failures) for play in plays
    ]
    levels = [
        level
        for play, own in zip(plays, answers, strict=True)
        for level in _rollouts(play, own, failures)
    ]
    trees = await _play_levels(levels, ranks)
    failed = [tree for tree in trees if tree.status is not RolloutStatus.OK]
    failures.check(len(failed), len(trees), "rollouts", failed[0].cause or "" if failed else "")
    counts = ranks.gather([(own.num_dropped, own.num_asked, own.drop_cause) for own in answers])
    num_dropped = sum(count[0] for count in counts)
    num_candidates = sum(count[1] for count in counts)
    cause = next((cause for *_, cause in counts if cause), "")
    failures.check(num_dropped, num_candidates, "candidates", cause)
    return trees


def _rollouts(play: Play, answers: Answers, failures: FailureLog) -> list[list[TreeRollout]]:
    """Return all rollouts; those that need each other are in one list."""
    episodes, pool, specs, settings = play
    credit = credit_of(settings, episodes, pool, answers)
    shared = (episodes, answers, credit)
    if settings.num_forks:
        found: list[list[TreeRollout]] = []
        for stem, *forks in _of_levels(specs, 1 + settings.num_forks):
            vine = Vine(len(forks))
            others = (ForkRollout(vine, *shared, spec, settings, failures) for spec in forks)
            found.append([StemRollout(vine, *shared, stem, settings, failures), *others])
        return found
    if settings.num_lockstep:
        return [
            [LockstepRollout(lockstep, *shared, spec, settings, failures) for spec in level]
            for level in _of_levels(specs, settings.num_lockstep)
            for lockstep in [Lockstep(len(level))]
        ]
    kind = WholeRollout if settings.num_branchings else TreeRollout
    return [[kind(*shared, spec, settings, failures)] for spec in specs]


def _of_levels(specs: Sequence[RolloutSpec], num: int) -> list[Sequence[RolloutSpec]]:
    return [specs[first : first + num] for first in range(0, len(specs), num)]


async def _play_levels(levels: Sequence[Sequence[TreeRollout]], ranks: Ranks) -> list[RolloutTree]:
    """Return the trees of all rollouts, in order; each rank plays its share of the lists."""
    own = ranks.share(levels)
    played = iter(await _all(rollout.play() for level in own for rollout in level))
    lists = ranks.gather([[next(played) for _ in level] for level in own])
    return [tree for trees in lists for tree in trees]


async def _all(plays: Iterable[Coroutine[Any, Any, RolloutTree]]) -> list[RolloutTree]:
    """Return the results of all; the first error ends the others."""
    tasks = [asyncio.ensure_future(play) for play in plays]
    # Not a TaskGroup: it would wrap the error, and callers know errors by their type.
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
