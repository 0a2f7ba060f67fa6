"""A run on a Ray cluster: who gets which processors, and what is built on them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.errors import EnvironmentNotLoadable, UnknownEnvironment
from pettingllms_trainers.backends.ray.cluster import (
    Bundle,
    explained,
    joined_cluster,
    reserved,
    start_actor,
)
from pettingllms_trainers.backends.ray.episodes import EnvWorker, EnvWorkers, RayEpisodes
from pettingllms_trainers.backends.ray.policies import (
    GENERATION,
    PolicyInfo,
    PolicyWorker,
    RemotePolicy,
)
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import base_groups
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import Batcher, ModelPolicy, PolicyPool
from pettingllms_trainers.rollout.environments import RunEnvironment, held_out_kwargs
from pettingllms_trainers.rollout.episode import EpisodesOfEnv, local_episodes

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
