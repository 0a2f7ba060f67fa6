"""Trees: every decision branches when it is reached, and the episode follows one branch."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal

from pettingllms_trainers.rollout.credit.credit import NOTHING, Credit
from pettingllms_trainers.rollout.player import Player

BranchChoice = Literal["greedy", "random", "softmax"]


class Tree:
    """Plays an episode that has K candidates at every decision and follows one; see `Strategy`.

    Args:
        num_candidates: K.
        credit: Finds what follows candidates beyond their rewards.
        branch_choice: Which candidate is followed; see `choose`.
        branch_temperature: See `choose`.

    Source:
        AT-GRPO (arXiv 2510.11062, algorithm 1), which follows the best.
    """

    num_together = 1

    def __init__(
        self,
        num_candidates: int,
        credit: Credit,
        branch_choice: BranchChoice,
        branch_temperature: float,
    ) -> None:
        self._num, self._credit = num_candidates, credit
        self._choice: BranchChoice = branch_choice
        self._temperature = branch_temperature

    async def play(self, players: Sequence[Player]) -> None:
        """See `Strategy.play`."""
        (player,) = players
        await player.attempt(self._play(player))

    async def _play(self, player: Player) -> None:
        await player.start()
        while player.is_playing:
            position = len(player.decisions)
            sampled, branches = await player.branch(self._num)
            found = NOTHING
            if len(branches) > 1:  # what is compared with nothing needs no value
                seed = player.seed("continuation", position)
                found = await self._credit.of_branches(
                    player.candidates, player.episode, len(branches), seed
                )
            player.num_continuation_tokens += found.num_tokens
            # "advance" is part of the seed.
            chosen = choose(
                [one.reward + value for one, value in zip(branches, found.values, strict=True)],
                self._choice,
                self._temperature,
                random.Random(player.seed("advance", position)),
            )
            await player.follow(sampled, branches, found.values, chosen)


def choose(
    rewards: Sequence[float], branch_choice: BranchChoice, temperature: float, rng: random.Random
) -> int:
    """Return the index of the candidate that an episode continues with.

    Args:
        rewards: [K] rewards of the candidates, at least one.
        branch_choice: `greedy`: the best, the lowest index among equals; `random`: any;
            `softmax`: with probability proportional to `exp(reward / temperature)`.
        temperature: Of `softmax`, above 0.
        rng: Source of chance.
    """
    if branch_choice == "greedy":
        return rewards.index(max(rewards))
    if branch_choice == "random":
        return rng.randrange(len(rewards))
    best = max(rewards)
    weights = [math.exp((reward - best) / temperature) for reward in rewards]
    return rng.choices(range(len(rewards)), weights)[0]
