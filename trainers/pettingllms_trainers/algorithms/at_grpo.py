"""AT-GRPO, the algorithm of Stronger-MAS: a tree, whose episode follows one of K candidates."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Protocol

from pydantic import Field

from pettingllms_trainers.algorithms.base import Branching
from pettingllms_trainers.config.algorithm import StepContext, Strategy
from pettingllms_trainers.config.sections import CountsWith
from pettingllms_trainers.rollout.candidates import Candidates
from pettingllms_trainers.rollout.player import Player

BranchChoice = Literal["greedy", "random", "softmax"]


class AtGrpo(Branching):
    """A tree with K candidates at every decision, compared by the reward of their own step.

    Take it when every step is rewarded in line with the outcome.

    Source:
        Stronger-MAS (arXiv 2510.11062), algorithm 1. Changed: groups without spread give exact
        zeros, so that nothing is added to the divisor; see `learning.groups`.
    """

    name: str = "at_grpo"
    """Which algorithm."""
    branch_choice: BranchChoice = "greedy"
    """Candidate with which an episode continues: the best (the paper), a random one, or one drawn
    by softmax of rewards."""
    branch_temperature: Annotated[float, CountsWith('branch_choice = "softmax"')] = Field(
        default=1.0, gt=0
    )
    """Divides the rewards in softmax branch_choice."""

    def strategy(self, context: StepContext) -> Strategy:
        return Tree(
            self.num_candidates, self.credit(context), self.branch_choice, self.branch_temperature
        )

    def credit(self, context: StepContext) -> Credit:
        """What estimates the return after a candidate: nothing here, rewards alone count."""
        return by_reward

    @property
    def is_by_step(self) -> bool:
        return True

    @property
    def sees_size(self) -> bool:
        return super().sees_size or self.branch_choice == "softmax"


class Values(NamedTuple):
    """Expected returns after the K candidates of a decision."""

    values: tuple[float, ...]
    """[K] discounted return after each candidate, without its own reward; 0 where it ends the
    episode."""
    num_tokens: int = 0
    """Tokens that were sampled for the estimate."""


class Credit(Protocol):
    """Estimates the return after candidates, in rewards of whoever acts.

    A candidate is compared, and a branch chosen, by ``reward + value``. Credits differ in the value
    alone, so that every credit goes with every way to choose the branch, and the decisions that
    have several candidates.
    """

    async def __call__(
        self, candidates: Candidates, episode: int, num_branches: int, seed: int
    ) -> Values:
        """Estimate the return after each of the last branches of an episode.

        Args:
            candidates: Samples continuations, and has the policies with their V.
            episode: Id of the episode, which is left as it is.
            num_branches: K.
            seed: Of all that is drawn.
        """
        ...


async def by_reward(candidates: Candidates, episode: int, num_branches: int, seed: int) -> Values:
    """Zeros: nothing is expected to follow (AT-GRPO, arXiv 2510.11062, section 3); a `Credit`."""
    return Values((0.0,) * num_branches)


class Tree:
    """Plays an episode that has K candidates at every decision and follows one; see `Strategy`.

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
        (player,) = players
        await player.attempt(self._play(player))

    async def _play(self, player: Player) -> None:
        await player.start()
        while player.is_playing:
            position = len(player.decisions)
            sampled, branches = await player.branch(self._num)
            # A single candidate is compared with nothing and needs no value.
            credit = self._credit if len(branches) > 1 else by_reward
            values, num_tokens = await credit(
                player.candidates,
                player.episode,
                len(branches),
                player.seed("continuation", position),
            )
            player.num_continuation_tokens += num_tokens
            # Equal seeds give equal runs: "advance" is part of the seed.
            chosen = choose(
                [one.reward + value for one, value in zip(branches, values, strict=True)],
                self._choice,
                self._temperature,
                random.Random(player.seed("advance", position)),
            )
            await player.follow(sampled, branches, values, chosen)


def choose(
    rewards: Sequence[float], branch_choice: BranchChoice, temperature: float, rng: random.Random
) -> int:
    """The index of the candidate that an episode continues with.

    Args:
        rewards: [K] rewards of the candidates, at least one.
        branch_choice: `greedy`: the best, the lowest index among equals; `random`: any;
            `softmax`: with probability proportional to `exp(reward / temperature)`.
        temperature: Of `softmax`, above 0.
    """
    if branch_choice == "greedy":
        return rewards.index(max(rewards))
    if branch_choice == "random":
        return rng.randrange(len(rewards))
    # Less the largest, so that no exponential overflows; the weights are proportional all the same.
    best = max(rewards)
    weights = [math.exp((reward - best) / temperature) for reward in rewards]
    return rng.choices(range(len(rewards)), weights)[0]
