"""Every episode on its own, with one answer per decision."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trainers.rollout.player import Player


class Alone:
    """Plays an episode from its start to its end; see `Strategy`."""

    num_together = 1

    async def play(self, players: Sequence[Player]) -> None:
        """See `Strategy.play`."""
        (player,) = players
        await player.attempt(_play(player))


async def _play(player: Player) -> None:
    await player.start()
    await player.play_on()
