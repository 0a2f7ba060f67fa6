"""Tree-GRPO: whole episodes, some of whose decisions branch afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import Field

from pettingllms import role_of
from pettingllms_trainers.algorithms.base import Branching
from pettingllms_trainers.algorithms.continuation import ByContinuation
from pettingllms_trainers.config.algorithm import StepContext, Strategy
from pettingllms_trainers.rollout.episode import EpisodeState
from pettingllms_trainers.rollout.player import Player, scored
from pettingllms_trainers.types import Decision

_Copy = tuple[int, EpisodeState]
"""Id of an episode that stays in the state before a decision, and that state."""


class TreeGrpo(Branching):
    """A whole episode, then K - 1 further candidates for some of its decisions, each played on.

    Take it when rewards come late and episodes are long: its cost does not grow with K times the
    depth.

    Source:
        Tree-GRPO (arXiv 2509.21240, section 3). Changed: candidates of one decision are compared
        with each other only; there is no second comparison between trees.
    """

    name: str = "tree_grpo"
    """Which algorithm."""
    num_branchings: int = Field(default=2, ge=1)
    """Decisions of an episode, drawn at random, that get K - 1 further candidates."""
    num_continuations: int = Field(default=1, ge=1)
    """M: times that the current policies play on from every further candidate to the end of the
    episode."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of later rewards, per decision of any role."""

    @property
    def usual_candidates(self) -> int:
        return 1

    def continuations(self, num_decisions: int) -> Sequence[int]:
        num = min(self.num_branchings, num_decisions)
        # At most, as they are the longest after the first decisions.
        after_each = (self.num_candidates - 1) * self.num_continuations
        return [after_each] * num + [0] * (num_decisions - num)

    def strategy(self, context: StepContext) -> Strategy:
        return Branchings(self)


class Branchings:
    """Plays an episode with one answer per decision, then lets some of them branch; see `Strategy`.

    Decisions that branch are chosen among those of the branching roles. Each gets K - 1 further
    candidates, which are played on to the end of the episode. Its first candidate is the answer
    that was played, valued by the rest of the episode.

    Args:
        algorithm: K, the number of decisions that branch, continuations and discount.
        prefer: The decisions with the highest values of this branch; None: random ones.
    """

    num_together = 1

    def __init__(
        self, algorithm: TreeGrpo, prefer: Callable[[Decision], float] | None = None
    ) -> None:
        self._num, self._num_branchings = algorithm.num_candidates, algorithm.num_branchings
        self._credit = ByContinuation(algorithm.num_continuations, algorithm.gamma)
        self._prefer = prefer

    async def play(self, players: Sequence[Player]) -> None:
        (player,) = players
        copies: list[_Copy] = []
        try:
            await player.attempt(self._play(player, copies))
        finally:
            for episode, _ in copies:
                await player.candidates.episodes.close(episode)

    async def _play(self, player: Player, copies: list[_Copy]) -> None:
        await player.start()
        while player.is_playing:
            # Before every decision, as which of them branch is drawn when their number is known.
            copies.append(await player.candidates.episodes.fork(player.episode))
            await player.step()
        for position in self._chosen(player):
            await self._branch(player, position, copies)

    def _chosen(self, player: Player) -> Sequence[int]:
        settings = player.candidates.settings
        possible = [
            index
            for index, decision in enumerate(player.decisions)
            if decision.prompt_ids and settings.branches(role_of(decision.key.agent))
        ]
        num = min(self._num_branchings, len(possible))
        if self._prefer is None:
            return sorted(random.Random(player.seed("branchings", 0)).sample(possible, num))
        worth = [self._prefer(decision) for decision in player.decisions]
        return sorted(sorted(possible, key=worth.__getitem__, reverse=True)[:num])

    async def _branch(self, player: Player, position: int, copies: Sequence[_Copy]) -> None:
        candidates, (episode, state) = player.candidates, copies[position]
        seed = player.seed("further", position)
        sampled = await candidates.sample(episode, state, self._num - 1, seed)
        branches = await candidates.branch(episode, sampled)
        seed = player.seed("continuation", position)
        values, num_tokens = await self._credit(candidates, episode, len(branches), seed)
        player.num_continuation_tokens += num_tokens
        # What was played on from the first candidate is the rest of the episode: one continuation.
        rest = [decision.candidates[0].reward for decision in player.decisions[position + 1 :]]
        decision = player.decisions[position]
        first = replace(decision.candidates[0], value=self._credit.of_path(rest))
        further = scored(sampled, branches, values)
        player.decisions[position] = replace(decision, candidates=(first, *further))
