"""All episodes of a train step or an evaluation, played at once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from pettingllms_trainers.config.algorithm import Strategy
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.candidates import Candidates
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.player import Player
from pettingllms_trainers.rollout.settings import RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.together import together
from pettingllms_trainers.types import RolloutStatus, RolloutTree

_Level = tuple[Strategy, Sequence[Player]]

_Playing = Coroutine[Any, Any, list[RolloutTree]]


def _to_its_end(level: _Playing) -> _Playing:
    return level


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
    strategy: Strategy
    """What the episodes of a level do."""


async def play_episodes(
    episodes: Episodes,
    pool: PolicyPool,
    specs: Sequence[RolloutSpec],
    settings: RolloutSettings,
    strategy: Strategy,
    failures: FailureLog,
) -> list[RolloutTree]:
    """Play episodes of one environment; see `play_all`.

    Args:
        episodes: Where the environments live.
        pool: Policies of the roles.
        specs: Episodes to play.
        settings: How to sample.
        strategy: What the episodes of a level do.
        failures: Counts and logs what fails.
    """
    return await play_all([Play(episodes, pool, specs, settings, strategy)], failures, pool.ranks)


async def play_all(plays: Sequence[Play], failures: FailureLog, ranks: Ranks) -> list[RolloutTree]:
    """Play all episodes at once, so that the engines see big batches; every rank plays its share.

    Args:
        plays: Episodes of each environment; their ids are different.
        failures: Counts and logs what fails.
        ranks: The processes that play together. Collective.

    Returns:
        One tree per episode, in order; a failed one has its status and cause.

    Raises:
        RolloutError: More trees or candidates failed than allowed.
    """
    return joined(await play_share(plays, failures, ranks), failures, ranks)


class Share(NamedTuple):
    """What one rank has played."""

    trees: list[list[RolloutTree]]
    """By level."""
    candidates: list[Candidates]
    """Of each environment."""


async def play_share(
    plays: Sequence[Play],
    failures: FailureLog,
    ranks: Ranks,
    keep: Callable[[_Playing], _Playing] = _to_its_end,
) -> Share:
    """Play this rank's levels of all environments at once; waits for no other rank.

    Args:
        plays: See `play_all`.
        failures: See `play_all`.
        ranks: See `play_all`.
        keep: Plays a level, whose trees it gives: none of one that it gives up.
    """
    candidates = [Candidates(play.episodes, play.pool, play.settings, failures) for play in plays]
    levels = [
        (play.strategy, [Player(own, spec) for spec in specs])
        for play, own in zip(plays, candidates, strict=True)
        for specs in _of_levels(play.specs, play.strategy.num_together)
    ]
    # A level is not divided: in some strategies its episodes wait for each other.
    own = ranks.share(levels)
    return Share(await together(keep(_play(*level)) for level in own), candidates)


def joined(share: Share, failures: FailureLog, ranks: Ranks) -> list[RolloutTree]:
    """Return the trees of all ranks; see `play_all`."""
    # Gathered in the order in which they were shared: trees are those of one process alone.
    trees = [tree for trees in ranks.gather(share.trees) for tree in trees]
    failed = [tree for tree in trees if tree.status is not RolloutStatus.OK]
    # Checked at the end and over all ranks: all of them stop, or none does.
    failures.check(len(failed), len(trees), "rollouts", failed[0].cause or "" if failed else "")
    counts = ranks.gather(
        [(own.num_dropped, own.num_asked, own.drop_cause) for own in share.candidates]
    )
    num_dropped = sum(count[0] for count in counts)
    num_candidates = sum(count[1] for count in counts)
    cause = next((cause for *_, cause in counts if cause), "")
    failures.check(num_dropped, num_candidates, "candidates", cause)
    return trees


def _of_levels(specs: Sequence[RolloutSpec], num: int) -> list[Sequence[RolloutSpec]]:
    return [specs[first : first + num] for first in range(0, len(specs), num)]


async def _play(strategy: Strategy, players: Sequence[Player]) -> list[RolloutTree]:
    try:
        await strategy.play(players)
    # Also when a sibling failed: environments hold processes and sandbox workers.
    finally:
        for player in players:
            await player.close()
    return [player.tree() for player in players]
