"""Episodes whose answers are judged: their rewards are added to those of the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pettingllms import TextEnv, role_of
from pettingllms_trainers.config.roles import qualified
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState, LostBranch
from pettingllms_trainers.rollout.judging.rewards import Judged, Rewards
from pettingllms_trainers.rollout.judging.scoring import Exchange


class _Kept(NamedTuple):
    """A branch that was judged."""

    index: int
    """Which of the last branches of the episodes below."""
    agent: str
    """Whose answer it is."""
    reward: float
    """What is added to that agent's reward."""

    def added(self, state: EpisodeState) -> EpisodeState:
        """Return where the branch leads, with its reward."""
        rewards = dict(state.rewards)
        rewards[self.agent] += self.reward
        return replace(state, rewards=rewards)


class JudgedEpisodes:
    """Episodes of another place; the acting agent earns what its answer is judged to be worth.

    That is part of its own reward, not of the team's: the judge reads one answer. A branch that
    cannot be judged is lost, unless the reward has a score for that.

    Args:
        episodes: Where the episodes are played; see `Episodes`.
        rewards: Who judges.
        env: Name of the environment among several.
    """

    def __init__(self, episodes: Episodes, rewards: Rewards, env: str = "") -> None:
        self._episodes, self._rewards, self._env = episodes, rewards, env
        self._states: dict[int, EpisodeState] = {}
        self._kept: dict[int, list[_Kept]] = {}

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        """See `Episodes.start`."""
        episode, state = await self._episodes.start(env_seed)
        return episode, self._now(episode, state)

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch | LostBranch, ...]:
        """See `Episodes.branch`."""
        state = self._states[episode]
        role = qualified(self._env, role_of(state.agent))
        # Both at once: a judge may take as long as the environment.
        found, judged = await asyncio.gather(
            self._episodes.branch(episode, texts),
            asyncio.gather(
                *(self._rewards.judge(role, Exchange(state.messages, str(text))) for text in texts)
            ),
        )
        branches = tuple(map(_with_reward, found, judged))
        inner = [branch for branch in zip(found, branches, judged, strict=True)]
        has_fork = [one for one in inner if isinstance(one[0], Branch)]
        self._kept[episode] = [
            _Kept(index, state.agent, own.reward)
            for index, (_, branch, own) in enumerate(has_fork)
            if isinstance(branch, Branch)
        ]
        return branches

    async def follow(self, episode: int, index: int) -> EpisodeState:
        """See `Episodes.follow`."""
        kept = self._kept.pop(episode)[index]
        return self._now(episode, kept.added(await self._episodes.follow(episode, kept.index)))

    async def successors(self, episode: int) -> tuple[EpisodeState, ...]:
        """See `Episodes.successors`."""
        states = await self._episodes.successors(episode)
        return tuple(one.added(states[one.index]) for one in self._kept[episode])

    async def fork(self, episode: int, index: int | None = None) -> tuple[int, EpisodeState]:
        """See `Episodes.fork`."""
        if index is None:
            copy, _ = await self._episodes.fork(episode)
            return copy, self._now(copy, self._states[episode])
        kept = self._kept[episode][index]
        copy, state = await self._episodes.fork(episode, kept.index)
        return copy, self._now(copy, kept.added(state))

    async def environment(self, episode: int) -> TextEnv[Any]:
        """See `Episodes.environment`."""
        return await self._episodes.environment(episode)

    async def close(self, episode: int) -> None:
        """See `Episodes.close`."""
        self._states.pop(episode, None)
        self._kept.pop(episode, None)
        await self._episodes.close(episode)

    def _now(self, episode: int, state: EpisodeState) -> EpisodeState:
        self._states[episode] = state
        return state


def _with_reward(branch: Branch | LostBranch, judged: Judged) -> Branch | LostBranch:
    if isinstance(branch, LostBranch):
        return branch
    if judged.failure:
        kind, _, _ = judged.failure.partition(":")
        return LostBranch(judged.failure, kind, "")
    return branch._replace(
        env_reward=branch.reward if branch.env_reward is None else branch.env_reward,
        reward=branch.reward + judged.reward,
        local=branch.local + judged.reward,
        judged=judged.scores,
    )
