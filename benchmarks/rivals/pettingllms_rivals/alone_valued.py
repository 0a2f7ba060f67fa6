"""Whole episodes that ask V about every state that they come to."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trainers.rollout.credit.credit import Credit
from pettingllms_trainers.rollout.player import Player


class AloneValued:
    """Plays an episode from its start to its end, with what follows every answer; see `Strategy`.

    Args:
        credit: Finds what follows.
    """

    num_together = 1

    def __init__(self, credit: Credit) -> None:
        self._credit = credit

    async def play(self, players: Sequence[Player]) -> None:
        """See `Strategy.play`."""
        (player,) = players
        await player.attempt(self._play(player))

    async def _play(self, player: Player) -> None:
        await player.start()
        while player.is_playing:
            seed = player.seed("value", len(player.decisions))
            sampled, branches = await player.branch(1)
            found = await self._credit.of_branches(player.candidates, player.episode, 1, seed)
            await player.follow(sampled, branches, found.values)
