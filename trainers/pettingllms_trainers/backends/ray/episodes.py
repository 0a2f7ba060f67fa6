"""Episodes in worker processes of a Ray cluster; a lost worker costs its own episodes only.

`RayEpisodes` is in the main process, `EnvWorker` in each worker, which needs no torch.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pettingllms
from pettingllms import TextEnv
from pettingllms_trainers.backends.ray.cluster import explained
from pettingllms_trainers.errors import EpisodeFailure, WorkerLost
from pettingllms_trainers.rollout.episode import Branch, EpisodeState, LocalEpisodes

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Worker:
    """A worker for as long as its process lives."""

    index: int
    actor: Any
    num_episodes: int = 0


class _RemoteEpisode(NamedTuple):
    """Where an episode is played."""

    home: _Worker
    number: int
    """Id of the episode there; workers give none twice, so that a late `close` does no harm."""


class EnvWorkers:
    """Workers of environments, replaced when they are lost.

    Args:
        start: Starts an `EnvWorker`; its argument is the position of the worker.
        count: Number of workers, at least 1.
        timeout_s: How long a worker may take to begin an episode.
    """

    def __init__(self, start: Callable[[int], Any], count: int, timeout_s: float) -> None:
        self._start, self._timeout_s = start, timeout_s
        self._homes = [_Worker(index, start(index)) for index in range(count)]

    @property
    def actors(self) -> list[Any]:
        """The present actors."""
        return [home.actor for home in self._homes]

    def least_busy(self) -> _Worker:
        """The worker with the fewest episodes."""
        return min(self._homes, key=lambda home: home.num_episodes)

    async def call(self, home: _Worker, kind: str, method: str, *given: object) -> Any:
        """What the episodes of a kind return there; see `Episodes`.

        Raises:
            EpisodeFailure: The environment crashed, or the worker is lost.
        """
        actor = home.actor
        call = (
            actor.snapshot.remote(kind, *given)
            if method == "snapshot"
            else actor.call.remote(kind, method, *given)
        )
        is_first = method == "start"  # the worker may not have a process yet, and never get one
        try:
            with explained(f"environment worker {home.index}"):
                return await asyncio.wait_for(call, self._timeout_s if is_first else None)
        except TimeoutError:
            cause = f"environment worker {home.index} began no episode in {self._timeout_s:g} s"
            raise EpisodeFailure(f"{cause} (ray.timeout_s)") from None
        except WorkerLost as error:
            self._replace(home)
            raise EpisodeFailure(f"environment worker {home.index} was lost") from error

    def _replace(self, home: _Worker) -> None:
        # Several calls may find the same worker lost; it is replaced once.
        if self._homes[home.index] is home:
            logger.warning("environment worker %d is lost and started again", home.index)
            self._homes[home.index] = _Worker(home.index, self._start(home.index))


class RayEpisodes:
    """Environments of one kind in worker processes; see `Episodes`."""

    def __init__(self, kind: str, env: TextEnv[Any], workers: EnvWorkers) -> None:
        self._kind, self._env, self._workers = kind, env, workers
        self._places: dict[int, _RemoteEpisode] = {}
        self._ids = itertools.count()

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        return await self._begin(self._workers.least_busy(), "start", env_seed)

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch, ...]:
        return await self._call(episode, "branch", texts)

    async def follow(self, episode: int, index: int) -> EpisodeState:
        return await self._call(episode, "follow", index)

    async def successors(self, episode: int) -> tuple[EpisodeState, ...]:
        return await self._call(episode, "successors")

    async def fork(self, episode: int, index: int | None = None) -> tuple[int, EpisodeState]:
        """The copy lives where the episode does."""
        home, number = self._places[episode]
        return await self._begin(home, "fork", number, index)

    async def environment(self, episode: int) -> TextEnv[Any]:
        snapshot = await self._call(episode, "snapshot")
        # Here: the trainer asks for an environment only to look at it.
        env = self._env.fork()
        env.restore(snapshot)
        return env

    async def close(self, episode: int) -> None:
        place = self._places.pop(episode, None)
        if place is not None:
            place.home.num_episodes -= 1
            # Nobody waits: the worker may be lost.
            place.home.actor.call.remote(self._kind, "close", place.number)

    async def _begin(
        self, home: _Worker, method: str, *arguments: object
    ) -> tuple[int, EpisodeState]:
        home.num_episodes += 1  # at once: others that begin now go elsewhere
        try:
            number, state = await self._workers.call(home, self._kind, method, *arguments)
        except BaseException:
            home.num_episodes -= 1
            raise
        episode = next(self._ids)
        self._places[episode] = _RemoteEpisode(home, number)
        return episode, state

    async def _call(self, episode: int, method: str, *arguments: object) -> Any:
        home, number = self._places[episode]
        return await self._workers.call(home, self._kind, method, number, *arguments)


class EnvWorker:
    """Environments of several kinds in a process of their own; see `Episodes`.

    Args:
        kinds: Id of an installed environment and its arguments, of each kind: made here.
        num_threads: Threads that step environments of a kind; 0: the main one.
    """

    def __init__(
        self, kinds: Mapping[str, tuple[str, Mapping[str, Any]]], num_threads: int
    ) -> None:
        self._kinds, self._num_threads = kinds, num_threads
        self._episodes: dict[str, LocalEpisodes] = {}

    async def build(self) -> None:
        """Make the environments.

        Raises:
            PettingLLMsError: They cannot be made here.
        """
        for kind in self._kinds:
            self._of(kind)

    def _of(self, kind: str) -> LocalEpisodes:
        if kind not in self._episodes:
            env_id, kwargs = self._kinds[kind]
            env = pettingllms.make(env_id, checks=False, **kwargs)
            self._episodes[kind] = LocalEpisodes(env, self._num_threads)
        return self._episodes[kind]

    async def call(self, kind: str, method: str, *given: Any) -> Any:
        """The result of a method of `Episodes`."""
        return await getattr(self._of(kind), method)(*given)

    async def snapshot(self, kind: str, episode: int) -> Any:
        """The state of an episode; see `TextEnv.snapshot`."""
        return (await self._of(kind).environment(episode)).snapshot()
