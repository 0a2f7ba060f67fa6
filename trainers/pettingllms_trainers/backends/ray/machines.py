"""A run on a Ray cluster: who gets which processors, what is built and played on them.

`RayEpisodes` is in the main process, `EnvWorker` in each worker, which needs no torch; a lost
worker costs its own episodes only.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pettingllms
from pettingllms import TextEnv
from pettingllms.errors import EnvironmentNotLoadable, UnknownEnvironment
from pettingllms_trainers.backends.ray.cluster import (
    Bundle,
    explained,
    joined_cluster,
    reserved,
    start_actor,
)
from pettingllms_trainers.backends.ray.policies import (
    GENERATION,
    PolicyInfo,
    PolicyWorker,
    RemotePolicy,
)
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import base_groups
from pettingllms_trainers.errors import ConfigError, EpisodeFailure, WorkerLost
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import Batcher, ModelPolicy, PolicyPool
from pettingllms_trainers.rollout.environments import RunEnvironment, held_out_kwargs
from pettingllms_trainers.rollout.episode import (
    Branch,
    EpisodesOfEnv,
    EpisodeState,
    LocalEpisodes,
    local_episodes,
)

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Worker:
    """An environment worker, for as long as its process lives."""

    index: int
    """Its number, which a replacement keeps."""
    actor: Any
    """Handle of the `EnvWorker`."""
    num_episodes: int = 0
    """Episodes that are played there."""


class _RemoteEpisode(NamedTuple):
    """Where an episode is played."""

    home: _Worker
    """The worker."""
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
    """Environments of one kind in worker processes; see `Episodes`.

    Args:
        kind: Names the environment and its arguments in every worker.
        env: The same environment here, from which snapshots are restored; it is not changed.
        workers: Where episodes are played.
    """

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


_ENVIRONMENTS = "the environments"


@contextlib.contextmanager
def open_ray_machines(config: Config) -> Generator[RayMachines]:
    """Join or start the cluster and reserve what the run needs; give it back at the end.

    Raises:
        ConfigError: There is no such cluster, or it has too few processors.
    """
    with joined_cluster(config.ray) as ray:
        teams = {_team_name(names): names for names in base_groups(config.models)}
        amounts = {"CPU": config.ray.cpus_per_worker, "GPU": config.ray.gpus_per_worker}
        bundle: Bundle = {kind: count for kind, count in amounts.items() if count}
        wanted = {name: [bundle] * config.ray.workers_per_policy for name in teams}
        if config.ray.num_env_workers:
            own: Bundle = {"CPU": config.ray.cpus_per_env_worker}
            wanted[_ENVIRONMENTS] = [own] * config.ray.num_env_workers
        with reserved(ray, wanted, config.ray.timeout_s) as groups:
            # Workers are ended before their places are given back.
            machines = RayMachines(ray, config, teams, groups)
            try:
                yield machines
            finally:
                machines.close()


class RayMachines:
    """Policies and environments in actors; see `Machines`."""

    def __init__(
        self,
        ray: Any,
        config: Config,
        teams: Mapping[str, Sequence[str]],
        groups: Mapping[str, Any],
    ) -> None:
        self._ray, self._config, self._groups = ray, config, groups
        self._teams = dict(teams)
        self._workers = {
            team: [
                start_actor(
                    ray,
                    PolicyWorker,
                    groups[team],
                    index,
                    variables=_variables(config),
                    threads={GENERATION: 1} if config.plays_beside_updates else {},
                )
                for index in range(config.ray.workers_per_policy)
            ]
            for team in teams
        }
        self._env_workers: EnvWorkers | None = None
        if _ENVIRONMENTS in groups:
            self._env_workers = EnvWorkers(
                self._start_env_worker, config.ray.num_env_workers, config.ray.timeout_s
            )

    def build_pool(self, fixed_policies: Mapping[str, FixedPolicy]) -> PolicyPool:
        """All workers load their models at the same time."""
        config = self._ray.put(_located(self._config))
        # Started for all teams before the first is waited for.
        builds = {team: self._build(team, config) for team in self._teams}
        policies: dict[str, ModelPolicy] = {}
        for team, calls in builds.items():
            with explained(f"a worker of {team}"):
                # Any worker: all have the same policies.
                infos: Mapping[str, PolicyInfo] = self._ray.get(calls)[0]
            policies |= self._policies(self._workers[team], infos)
        return PolicyPool(
            policies={name: policies[name] for name in self._config.models},
            roles=self._config.roles,
            fixed_policies=fixed_policies,
            computes_elsewhere=True,
        )

    def _build(self, team: str, config: Any) -> list[Any]:
        workers, names = self._workers[team], list(self._teams[team])
        with explained(f"a worker of {team}"):
            meeting = self._ray.get(workers[0].meeting_point.remote())
        return [
            worker.build.remote(config, names, rank, len(workers), meeting)
            for rank, worker in enumerate(workers)
        ]

    def _policies(
        self, workers: Sequence[Any], infos: Mapping[str, PolicyInfo]
    ) -> dict[str, ModelPolicy]:
        remotes = {
            name: RemotePolicy(
                self._ray,
                name,
                workers,
                info.limits,
                generates_beside_updates=self._config.plays_beside_updates,
            )
            for name, info in infos.items()
        }
        shared = next(iter(remotes.values()))  # one engine: what one pushes is there for all
        return {
            name: ModelPolicy(
                name=name,
                encode=info.encode,
                encode_answer=info.encode_answer,
                token_texts=info.token_texts,
                check_grammar=info.check_grammar,
                batcher=Batcher(remotes[name]),
                updater=remotes[name] if info.is_trainable else None,
                sync=shared if info.has_copy else None,
            )
            for name, info in infos.items()
        }

    def build_episodes(self, environments: Sequence[RunEnvironment]) -> tuple[EpisodesOfEnv, ...]:
        workers = self._env_workers
        if workers is None:
            return local_episodes(self._config, environments)
        try:
            with explained("an environment worker"):
                self._ray.get([actor.build.remote() for actor in workers.actors])
        except (UnknownEnvironment, EnvironmentNotLoadable) as error:
            raise ConfigError(
                f"an environment worker cannot make "
                f"{' or '.join(env.id for env in self._config.env)}: {error}. Install the package "
                "of the environment on all machines"
            ) from error
        return tuple(
            EpisodesOfEnv(
                tuple(
                    RayEpisodes(_training(number, stage), made, workers)
                    for stage, made in enumerate(env.training)
                ),
                RayEpisodes(_held_out(number), env.held_out, workers),
            )
            for number, env in enumerate(environments)
        )

    def _start_env_worker(self, index: int) -> Any:
        config = self._config
        kinds: dict[str, tuple[str, dict[str, Any]]] = {}
        for number, env in enumerate(config.env):
            for stage, kwargs in enumerate(env.stage_kwargs):
                kinds[_training(number, stage)] = env.id, kwargs
            kinds[_held_out(number)] = env.id, held_out_kwargs(config, env)
        return start_actor(
            self._ray, EnvWorker, self._groups[_ENVIRONMENTS], index,
            kinds, config.rollout.env_threads,
        )  # fmt: skip

    def check_directory(self, directory: Path) -> None:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".seen-by-all-", suffix="~") as file:
            path = Path(file.name).resolve()
            for team, workers in self._workers.items():
                with explained(f"a worker of {team}"):
                    found = self._ray.get([worker.reads.remote(path) for worker in workers])
                if not all(found):
                    raise ConfigError(
                        f"the output directory {directory} is not seen by all workers of {team}: "
                        "checkpoints are written by them. Choose an output_dir that all machines "
                        "have under the same path, on a shared file system"
                    )

    def close(self) -> None:
        """End all workers."""
        actors = [worker for workers in self._workers.values() for worker in workers]
        for actor in actors + (self._env_workers.actors if self._env_workers else []):
            self._ray.kill(actor)


def _variables(config: Config) -> dict[str, str]:
    """What is set in the environment of policy workers; Ray shows them their own GPU."""
    # Without a reserved GPU a worker computes on the CPU, even where the machine has some.
    hidden = {} if config.ray.gpus_per_worker else {"CUDA_VISIBLE_DEVICES": ""}
    return {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", **hidden}


def _training(env: int, stage: int) -> str:
    return f"environment {env + 1}, training stage {stage + 1}"


def _held_out(env: int) -> str:
    return f"environment {env + 1}, held-out"


def _team_name(names: Sequence[str]) -> str:
    return f"the policy {names[0]!r}" if len(names) == 1 else f"the policies {', '.join(names)}"


def _located(config: Config) -> Config:
    """The configuration with all that depends on this process's place spelt out."""
    # Workers start in directories of their own, where a relative path names something else.
    policies = {
        name: policy.model_copy(update={"model": str(Path(policy.model).resolve())})
        if Path(policy.model).is_dir()
        else policy
        for name, policy in config.policies.items()
    }
    return config.model_copy(update={"policies": policies})
