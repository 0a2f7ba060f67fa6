"""Episodes whose rewards are multiplied by a factor: `env.reward_scale`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pettingllms import TextEnv
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState, LostBranch


class ScaledEpisodes:
    """Episodes of another place with rewards, and both parts of them, times a factor.

    Args:
        episodes: Where the episodes are played; see `Episodes`.
        scale: The factor, at least 0.
    """

    def __init__(self, episodes: Episodes, scale: float) -> None:
        self._episodes, self._scale = episodes, scale

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        """See `Episodes.start`."""
        episode, state = await self._episodes.start(env_seed)
        return episode, self._state(state)

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch | LostBranch, ...]:
        """See `Episodes.branch`."""
        return tuple(map(self._branch, await self._episodes.branch(episode, texts)))

    async def follow(self, episode: int, index: int) -> EpisodeState:
        """See `Episodes.follow`."""
        return self._state(await self._episodes.follow(episode, index))

    async def successors(self, episode: int) -> tuple[EpisodeState, ...]:
        """See `Episodes.successors`."""
        return tuple(map(self._state, await self._episodes.successors(episode)))

    async def fork(self, episode: int, index: int | None = None) -> tuple[int, EpisodeState]:
        """See `Episodes.fork`."""
        copy, state = await self._episodes.fork(episode, index)
        return copy, self._state(state)

    async def environment(self, episode: int) -> TextEnv[Any]:
        """See `Episodes.environment`."""
        return await self._episodes.environment(episode)

    async def close(self, episode: int) -> None:
        """See `Episodes.close`."""
        await self._episodes.close(episode)

    def _branch(self, branch: Branch | LostBranch) -> Branch | LostBranch:
        if isinstance(branch, LostBranch):
            return branch
        return branch._replace(
            env_reward=branch.reward,
            reward=branch.reward * self._scale,
            team=branch.team * self._scale,
            local=branch.local * self._scale,
        )

    def _state(self, state: EpisodeState) -> EpisodeState:
        rewards = {agent: reward * self._scale for agent, reward in state.rewards.items()}
        return replace(state, rewards=rewards)
