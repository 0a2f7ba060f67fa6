"""Episodes that take time and have no content: a workload behind the protocol `Episodes`."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pettingllms import TextEnv
from pettingllms_trainers.fleet.clock import VirtualLoop
from pettingllms_trainers.fleet.engine import prompt_of
from pettingllms_trainers.fleet.workload import Workload
from pettingllms_trainers.rollout.episode import Branch, EpisodeState, LostBranch


class _Position(NamedTuple):
    episode: int
    """Of the workload."""
    step: int


def encoded(messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
    """Return the tokens of a simulated prompt."""
    place, num_tokens = map(int, messages[0]["content"].split())
    return prompt_of(place, num_tokens)


class SimulatedEpisodes:
    """Plays a workload; see `Episodes`.

    A level always has the same length, whatever is answered. Rewards are random, so that algorithms
    that compare episodes or branches have something to choose by.

    Args:
        workload: What is played.
        workers: Environments step while one of these is free; a step of one is not divided. None:
            the process that plays steps them, and does nothing else meanwhile.
    """

    def __init__(self, workload: Workload, workers: asyncio.Semaphore | None) -> None:
        self._workload, self._workers = workload, workers
        self._positions: dict[int, _Position] = {}
        self._num_branches: dict[int, int] = {}
        self._begun: dict[int, float] = {}
        self._ids = itertools.count()
        self._first = _starts(workload)
        self._rng = random.Random(0)
        self.worked_s = 0.0
        """Time that workers were busy, added up."""
        self.player_s = 0.0
        """What the process that plays has computed itself."""
        self.spans: list[tuple[float, float]] = []
        """Beginning and end of every episode that was started, in simulated seconds."""

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        """See `Episodes.start`."""
        id, position = next(self._ids), _Position(env_seed % len(self._workload.episodes), 0)
        self._positions[id] = position
        self._begun[id] = asyncio.get_running_loop().time()
        return id, self._state(position)

    async def branch(self, episode: int, texts: Sequence[Any]) -> tuple[Branch | LostBranch, ...]:
        """See `Episodes.branch`."""
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        loop.leap(self._workload.decision_s)
        self.player_s += self._workload.decision_s
        seconds = self._workload.branch_s * len(texts)
        self.worked_s += seconds
        if self._workers is None:
            loop.leap(seconds)
            self.player_s += seconds
        else:
            async with self._workers:
                await asyncio.sleep(seconds)
        self._num_branches[episode] = len(texts)
        rewards = [self._rng.random() for _ in texts]
        return tuple(Branch(reward, reward, 0.0, None, False) for reward in rewards)

    async def follow(self, episode: int, index: int) -> EpisodeState:
        """See `Episodes.follow`."""
        position = self._positions[episode]
        self._positions[episode] = position._replace(step=position.step + 1)
        return self._state(self._positions[episode])

    async def successors(self, episode: int) -> tuple[EpisodeState, ...]:
        """See `Episodes.successors`."""
        position = self._positions[episode]
        after = self._state(position._replace(step=position.step + 1))
        return (after,) * self._num_branches[episode]

    async def fork(self, episode: int, index: int | None = None) -> tuple[int, EpisodeState]:
        """See `Episodes.fork`."""
        id, position = next(self._ids), self._positions[episode]
        if index is not None:
            position = position._replace(step=position.step + 1)
        self._positions[id] = position
        return id, self._state(position)

    async def environment(self, episode: int) -> TextEnv[Any]:
        """See `Episodes.environment`; there is none."""
        raise NotImplementedError("a simulated episode has no environment")

    async def close(self, episode: int) -> None:
        """See `Episodes.close`."""
        self._positions.pop(episode, None)
        self._num_branches.pop(episode, None)
        if (begun := self._begun.pop(episode, None)) is not None:
            self.spans.append((begun, asyncio.get_running_loop().time()))

    def _state(self, position: _Position) -> EpisodeState:
        steps = self._workload.episodes[position.episode]
        is_over = position.step == len(steps)
        step = steps[min(position.step, len(steps) - 1)]
        name = f"{position.episode} {position.step} {next(self._ids)}"
        return EpisodeState(
            agent=step.agent,
            turn=step.turn,
            messages=() if is_over else self._messages(position),
            state_hash=name,
            state_key=name,
            terminated=False,
            truncated=is_over,
            success=False,
            rewards=dict.fromkeys(self._agents, 0.0),
            co_acting=() if is_over else self._co_acting(position),
        )

    @property
    def _agents(self) -> list[str]:
        return [agent for stage in self._workload.stages for agent in stage]

    def _messages(self, position: _Position) -> tuple[dict[str, str], ...]:
        place = self._first[position.episode] + position.step
        step = self._workload.episodes[position.episode][position.step]
        return ({"role": "user", "content": f"{place} {step.num_prompt_tokens}"},)

    def _co_acting(self, position: _Position) -> tuple[tuple[str, tuple[dict[str, str], ...]], ...]:
        """Return who acts with the agent, where it is the first of its stage."""
        steps = self._workload.episodes[position.episode]
        first = steps[position.step]
        stage = next(one for one in self._workload.stages if first.agent in one)
        if first.agent != stage[0]:
            return ()
        found: list[tuple[str, tuple[dict[str, str], ...]]] = []
        for number in range(position.step + 1, len(steps)):
            step = steps[number]
            if step.turn != first.turn or step.agent not in stage:
                break
            found.append((step.agent, self._messages(position._replace(step=number))))
        return tuple(found)


def _starts(workload: Workload) -> list[int]:
    """Return the number of each episode's first step, counted through all episodes."""
    return list(itertools.accumulate(map(len, workload.episodes), initial=0))
