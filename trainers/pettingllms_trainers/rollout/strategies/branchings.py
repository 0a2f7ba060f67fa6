"""Whole episodes first, branches afterwards: depth does not multiply what is sampled."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from pettingllms import role_of
from pettingllms_trainers.rollout.credit.continuation import ByContinuation
from pettingllms_trainers.rollout.episode import EpisodeState
from pettingllms_trainers.rollout.player import Player, scored
from pettingllms_trainers.types import Decision

_Copy = tuple[int, EpisodeState]
"""An episode that is kept in the state before a decision, and that state."""


class Branchings:
    """Plays an episode with one answer per decision, then lets some of them branch; see `Strategy`.

    Decisions are chosen among those of the branching roles. Each gets K - 1 further candidates; the
    answer that was played is the first of its candidates, and what followed it is known. The others
    are played on to their ends.

    Args:
        num_candidates: K.
        num_branchings: Decisions of an episode that branch, at most.
        credit: Plays the further candidates on.
        prefer: Which decisions branch: those of which this is highest; None: any, at random.

    Source:
        Tree-GRPO (arXiv 2509.21240, section 3). Changed: candidates of one decision are compared
        with each other only; there is no second comparison between trees.
    """

    num_together = 1

    def __init__(
        self,
        num_candidates: int,
        num_branchings: int,
        credit: ByContinuation,
        prefer: Callable[[Decision], float] | None = None,
    ) -> None:
        self._num, self._num_branchings, self._credit = num_candidates, num_branchings, credit
        self._prefer = prefer

    async def play(self, players: Sequence[Player]) -> None:
        """See `Strategy.play`."""
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
        """Give a decision its further candidates."""
        candidates, (episode, state) = player.candidates, copies[position]
        seed = player.seed("further", position)
        sampled = await candidates.sample(episode, state, self._num - 1, seed)
        sampled, branches = await candidates.branch(episode, sampled)
        seed = player.seed("continuation", position)
        found = await self._credit.of_branches(candidates, episode, len(branches), seed)
        player.num_continuation_tokens += found.num_tokens
        rest = [decision.candidates[0].reward for decision in player.decisions[position + 1 :]]
        own = self._credit.of_path(rest)
        played = player.decisions[position]
        first = replace(played.candidates[0], value=own)
        further = scored(sampled, branches, found.values)
        player.decisions[position] = replace(played, candidates=(first, *further))
