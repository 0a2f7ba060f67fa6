"""Where a run plays in simulated time: engines, policies, episodes of one process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.policies import base_groups
from pettingllms_trainers.fleet.engine import Server, SimulatedEngine
from pettingllms_trainers.fleet.episodes import SimulatedEpisodes, encoded
from pettingllms_trainers.fleet.speeds import EngineSpeed
from pettingllms_trainers.fleet.workload import Workload, longest_answer
from pettingllms_trainers.policies.batcher import Batcher
from pettingllms_trainers.policies.pool import ModelPolicy, PolicyPool
from pettingllms_trainers.policies.protocols import Update
from pettingllms_trainers.rollout.environments import RunEnvironment


class Fleet(NamedTuple):
    """Which GPUs do what."""

    generate: tuple[int, ...]
    """Engines for each base model (`base_groups`), each on GPUs of its own."""
    learn: tuple[int, ...]
    """GPUs that do nothing but learn, for each of them; none: those that generate learn, too."""
    num_shared: int = 0
    """Processes on a GPU each (or several, with shards), which generate and then learn with all
    policies; without Ray each plays a share of the levels. 0: every base model has its own GPUs."""


def num_players(config: Config, fleet: Fleet) -> int:
    """Return the processes that play levels: one with Ray or dedicated GPUs."""
    return 1 if config.ray.enabled else max(fleet.num_shared, 1)


def learning_gpus(config: Config, fleet: Fleet) -> dict[str, int]:
    """Return base model to the GPUs on which it learns."""
    names = [group[0] for group in base_groups(config.models)]
    if fleet.num_shared:
        return dict.fromkeys(names, fleet.num_shared)
    own = fleet.learn or [config.engine.num_shards * num for num in fleet.generate]
    return dict(zip(names, own, strict=True))


class Place(NamedTuple):
    """Where a process plays."""

    servers: Mapping[str, Sequence[Server]]
    """Base model to its engines."""
    pool: PolicyPool
    episodes: SimulatedEpisodes


def place_of(
    config: Config,
    environment: RunEnvironment,
    workload: Workload,
    fleet: Fleet,
    engines: Mapping[str, EngineSpeed],
) -> Place:
    """Return a place of its own on a fleet.

    Args:
        config: The run.
        environment: What it plays.
        workload: What stands for it.
        fleet: On what.
        engines: What engines take, by base model.
    """
    servers = _servers(config, fleet, engines)
    has_workers = config.rollout.env_threads or (config.ray.enabled and config.ray.num_env_workers)
    workers = asyncio.Semaphore(config.num_env_workers(1)) if has_workers else None
    pool = _pool(config, environment, workload, servers, engines)
    return Place(servers, pool, SimulatedEpisodes(workload, workers))


def _servers(
    config: Config, fleet: Fleet, engines: Mapping[str, EngineSpeed]
) -> dict[str, list[Server]]:
    if fleet.num_shared:
        num = fleet.num_shared // num_players(config, fleet)
        shared = [Server(engines) for _ in range(num)]
        return dict.fromkeys(engines, shared)
    return {
        name: [Server({name: speed}) for _ in range(num)]
        for (name, speed), num in zip(engines.items(), fleet.generate, strict=True)
    }


def _pool(
    config: Config,
    environment: RunEnvironment,
    workload: Workload,
    servers: Mapping[str, Sequence[Server]],
    engines: Mapping[str, EngineSpeed],
) -> PolicyPool:
    steps = [step for episode in workload.episodes for step in episode]
    longest = {
        agent: longest_answer(config, environment, agent)
        for agent in dict.fromkeys(step.agent for step in steps)
    }

    def draw(place: int, rng: random.Random) -> int:
        return workload.length(steps[place], longest[steps[place].agent], rng)

    policies: dict[str, ModelPolicy] = {}
    for group in base_groups(config.models):
        base, speed = group[0], engines[group[0]]
        for name in group:
            engine = SimulatedEngine(
                base, servers[base], speed, draw, is_concurrent=config.is_continuous
            )
            policies[name] = ModelPolicy(
                name=name,
                encode=encoded,
                encode_answer=lambda _: (),
                batcher=Batcher(engine, is_continuous=config.is_continuous),
                updater=cast(Update, _NoValue()),
            )
    return PolicyPool(policies=policies, roles=environment.roles)


class _NoValue:
    """What rollouts ask of an updater: V, which costs little beside what is written."""

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        return [0.0] * len(prompts)
