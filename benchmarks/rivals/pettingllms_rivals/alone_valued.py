"""Whole episodes that ask V about every state that they come to."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from pettingllms_trainers.algorithms.whole_episodes import WholeEpisodes
from pettingllms_trainers.config.algorithm import Moment, Strategy, ValueConfig
from pettingllms_trainers.learning.targets import value_examples
from pettingllms_trainers.rollout.credit.value import ByValue
from pettingllms_trainers.rollout.player import Player
from pettingllms_trainers.types import RolloutTree, ValueExample


class ValuedEpisodes(WholeEpisodes):
    """K whole episodes per level, beside a V that learns their returns."""

    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per decision, of any role."""
    value: ValueConfig = ValueConfig()

    def strategy(self, moment: Moment) -> Strategy:
        """See `Algorithm.strategy`."""
        return _Alone(self.gamma)

    @property
    def critic(self) -> ValueConfig:
        """See `Algorithm.critic`."""
        return self.value

    def value_examples(
        self, trees: Sequence[RolloutTree], moment: Moment
    ) -> dict[str, list[ValueExample]]:
        """See `Algorithm.value_examples`: returns of whole episodes."""
        return value_examples(trees, gamma=self.gamma, path_weight=1.0)


class _Alone:
    """Plays an episode from its start to its end and asks V after every answer; see `Strategy`."""

    num_together = 1

    def __init__(self, gamma: float) -> None:
        self._credit = ByValue(gamma)

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
