"""Whole episodes that ask V about every state that they come to."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from pettingllms_trainers.algorithms.base import WholeEpisodes
from pettingllms_trainers.algorithms.value import ByValue, value_examples
from pettingllms_trainers.config.algorithm import StepContext, Strategy, ValueConfig
from pettingllms_trainers.rollout.player import Player
from pettingllms_trainers.types import RolloutTree, ValueExample


class ValuedEpisodes(WholeEpisodes):
    """K whole episodes per level, beside a V that learns their returns."""

    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per decision, of any role."""
    value: ValueConfig = ValueConfig()

    def strategy(self, context: StepContext) -> Strategy:
        return _Alone(self.gamma)

    @property
    def critic(self) -> ValueConfig:
        return self.value

    def value_examples(
        self, trees: Sequence[RolloutTree], context: StepContext
    ) -> dict[str, list[ValueExample]]:
        return value_examples(trees, gamma=self.gamma, path_weight=1.0)


class _Alone:
    """Plays an episode from its start to its end and asks V after every answer; see `Strategy`."""

    num_together = 1

    def __init__(self, gamma: float) -> None:
        self._credit = ByValue(gamma)

    async def play(self, players: Sequence[Player]) -> None:
        (player,) = players
        await player.attempt(self._play(player))

    async def _play(self, player: Player) -> None:
        await player.start()
        while player.is_playing:
            seed = player.seed("value", len(player.decisions))
            sampled, branches = await player.branch(1)
            found = await self._credit(player.candidates, player.episode, 1, seed)
            await player.follow(sampled, branches, found.values)
