"""Whole episodes that share a beginning: one is played whole, the others fork from it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.config.algorithm import StepContext, Strategy
from pettingllms_trainers.errors import EpisodeFailure
from pettingllms_trainers.rollout.candidates import together
from pettingllms_trainers.rollout.player import Player, Waypoint


class Vine(Reinforce):
    """A whole episode and K - 1 that fork from one of its decisions, drawn at random.

    Take it for comparison with whole episodes: in the project's own study it learnt at best as
    much as they did from the outcome.

    Source:
        The vine procedure of TRPO (arXiv 1502.05477, section 5.2). Changed: all decisions of a fork
        are trained on, not the first alone, and the stem is one of the episodes that are compared.
        As its decision is drawn among those that it had, the rest of a short stem counts for a
        little more than that of a long one.
    """

    name: str = "vine"
    """Which algorithm."""
    credit: Literal["return_to_go", "step"] = "return_to_go"
    """What is compared: the return from there on, or the reward of the step itself. Episodes that
    fork have not earned what came before."""

    def strategy(self, context: StepContext) -> Strategy:
        return StemAndForks(self.num_candidates)


class StemAndForks:
    """Plays the first episode of a level, and the others from one of its decisions; see `Strategy`.

    The decision is drawn uniformly among those of the first episode, the stem. The other episodes
    have the decisions before it as their prefix and take their own from there on; their returns and
    outcomes are those of whole episodes.

    Args:
        num_episodes: Episodes of a level, the stem included.
    """

    def __init__(self, num_episodes: int) -> None:
        self.num_together = num_episodes

    async def play(self, players: Sequence[Player]) -> None:
        stem, *forks = players
        drawn: list[Waypoint] = []
        try:
            await stem.attempt(_play_stem(stem, drawn))
            place = None if stem.has_failed else drawn[-1]
            await together(fork.attempt(_play_from(fork, place)) for fork in forks)
        finally:
            for place in drawn:
                await stem.candidates.episodes.close(place.episode)


async def _play_stem(stem: Player, drawn: list[Waypoint]) -> None:
    """Play an episode; the last of the places that are drawn is the one to fork from."""
    await stem.start()
    while stem.is_playing:
        position = len(stem.decisions)
        # A reservoir of one: the number of decisions is not known before the end.
        if not random.Random(stem.seed("fork", position)).randrange(position + 1):
            drawn.append(await stem.forked())
        await stem.step()


async def _play_from(fork: Player, place: Waypoint | None) -> None:
    if place is None:
        raise EpisodeFailure("the episode to fork from has failed")
    await fork.move_to(place)
    await fork.play_on()
