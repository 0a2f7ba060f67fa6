"""Train steps of a run on a fleet, in simulated time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.config.policies import base_groups
from pettingllms_trainers.fleet.clock import VirtualLoop
from pettingllms_trainers.fleet.engine import Server, SimulatedEngine
from pettingllms_trainers.fleet.episodes import SimulatedEpisodes, encoded
from pettingllms_trainers.fleet.speeds import EngineSpeed, LearningSpeed
from pettingllms_trainers.fleet.workload import Workload, longest_answer
from pettingllms_trainers.policies.batcher import Batcher
from pettingllms_trainers.policies.pool import ModelPolicy, PolicyPool
from pettingllms_trainers.policies.protocols import Update
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.playing import Play, play_all
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.rollout.settings import RolloutSettings, RolloutSpec, episode_specs
from pettingllms_trainers.types import RolloutTree

_TAIL = 0.1
"""The tail of rollouts begins when so few of the episodes are left."""


class Fleet(NamedTuple):
    """Which GPUs do what."""

    generate: tuple[int, ...]
    """Engines for each base model (`base_groups`), each on GPUs of its own."""
    learn: tuple[int, ...]
    """GPUs that learn, for each of them; none: see `num_shared`."""
    num_shared: int = 0
    """Processes on a GPU each (or several, with shards), which generate and then learn with all
    policies and play a share of the levels each; 0: GPUs are dedicated."""


class Speeds(NamedTuple):
    """What each base model takes."""

    engines: Mapping[str, EngineSpeed]
    """By the first policy of the base model, as in all that follows."""
    learning: Mapping[str, LearningSpeed]


class Rollouts(NamedTuple):
    """Rollouts of a train step."""

    seconds: float
    busy: Mapping[str, float]
    """Base model to the share of this time in which its engines had something to write."""
    tail: float
    """Share of the time in which at most a tenth of the episodes was left."""
    level_s: tuple[float, float]
    """Median and 95th percentile of an episode, from its beginning to its end."""
    num_tokens: Mapping[str, int]
    """Base model to what is read and written once for the update, by all its policies."""
    num_optimizer_steps: Mapping[str, int]
    """Base model to the optimizer steps of all its policies."""
    num_completion_tokens: int
    env_busy: float
    """Share of the time in which environments' workers were busy, all of them together."""
    running: Mapping[str, Sequence[tuple[float, int]]]
    """Base model to moments and the sequences that were written from then on."""


class StepTimes(NamedTuple):
    """A train step on a fleet."""

    fleet: Fleet
    rollouts: Rollouts
    update_s: Mapping[str, float]
    """Base model to its update; updates of dedicated GPUs overlap."""
    sync_s: float
    step_s: float
    is_ahead: bool
    """Whether rollouts and updates overlap, one train step apart."""


def rollouts_on(
    config: Config,
    environment: RunEnvironment,
    workload: Workload,
    fleet: Fleet,
    engines: Mapping[str, EngineSpeed],
) -> Rollouts:
    """Play the rollouts of a train step.

    Args:
        config: The run: its algorithm plays.
        environment: What it plays.
        workload: What stands for it.
        fleet: On what.
        engines: What engines take, by base model.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_play(config, environment, workload, fleet, engines))


async def _play(
    config: Config,
    environment: RunEnvironment,
    workload: Workload,
    fleet: Fleet,
    engines: Mapping[str, EngineSpeed],
) -> Rollouts:
    algorithm, num_ranks = config.algorithm, max(fleet.num_shared, 1)
    specs = episode_specs(
        seed=config.seed,
        step=0,
        first_level=0,
        num_levels=config.rollout.num_levels,
        num_trajectories=algorithm.episodes_per_level,
    )
    size = algorithm.episodes_per_level
    levels = [specs[first : first + size] for first in range(0, len(specs), size)]
    servers: list[dict[str, list[Server]]] = []
    played: list[SimulatedEpisodes] = []
    plays: list[Play] = []
    for rank in range(num_ranks):
        servers.append(_servers(fleet, engines))
        pool = _pool(config, environment, workload, servers[-1], engines)
        workers = asyncio.Semaphore(max(config.rollout.env_threads, 1))
        played.append(SimulatedEpisodes(workload, workers))
        own: list[RolloutSpec] = [spec for level in levels[rank::num_ranks] for spec in level]
        plays.append(
            Play(
                played[-1], pool, own, _settings(config, environment), algorithm.strategy(Moment())
            )
        )
    trees = list(
        itertools.chain(
            *await asyncio.gather(*(play_all([play], FailureLog(), Ranks()) for play in plays))
        )
    )
    seconds = asyncio.get_running_loop().time()
    return Rollouts(
        seconds,
        _busy(servers, seconds),
        _tail([end for one in played for _, end in one.spans], seconds),
        _percentiles([end - begin for one in played for begin, end in one.spans]),
        _tokens(config, workload, trees),
        _optimizer_steps(config, workload, trees),
        sum(len(c.completion.token_ids) for t in trees for d in t.decisions for c in d.candidates),
        sum(one.worked_s for one in played)
        / (seconds * num_ranks * max(config.rollout.env_threads, 1)),
        _running(servers),
    )


def step_on(config: Config, rollouts: Rollouts, fleet: Fleet, speeds: Speeds) -> StepTimes:
    """Return a train step: rollouts, updates and the way of new weights to the engines.

    Args:
        config: The run.
        rollouts: Its rollouts on the fleet.
        fleet: On what.
        speeds: What learning takes.
    """
    names = [group[0] for group in base_groups(config.models)]
    gpus = dict.fromkeys(names, fleet.num_shared) | dict(zip(names, fleet.learn, strict=False))
    update_s = {
        name: speeds.learning[name].optimizer_step_s * rollouts.num_optimizer_steps.get(name, 0)
        + speeds.learning[name].token_s * rollouts.num_tokens.get(name, 0) / gpus[name]
        for name in names
    }
    sync_s = max(speeds.learning[name].sync_s for name in names)
    is_ahead = config.plays_beside_updates and not fleet.num_shared
    # On shared GPUs policies learn one after another, on their own all at the same time.
    learn_s = sum(update_s.values()) if fleet.num_shared else max(update_s.values())
    step_s = max(rollouts.seconds, learn_s) if is_ahead else rollouts.seconds + learn_s
    return StepTimes(fleet, rollouts, update_s, sync_s, step_s + sync_s, is_ahead)


def _servers(fleet: Fleet, engines: Mapping[str, EngineSpeed]) -> dict[str, list[Server]]:
    if fleet.num_shared:
        shared = Server(engines)
        return {name: [shared] for name in engines}
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


def _settings(config: Config, environment: RunEnvironment) -> RolloutSettings:
    algorithm = config.algorithm
    names = {role: environment.role(f"{role}_0") for role in environment.roles}
    return RolloutSettings(
        sampling={role: sampling_of(config.rollout, name) for role, name in names.items()},
        branching_roles=tuple(
            role
            for role, name in names.items()
            if algorithm.branches(name) and config.trains(name, 0)
        ),
    )


def _busy(servers: Sequence[Mapping[str, Sequence[Server]]], seconds: float) -> dict[str, float]:
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for of_rank in servers:
        for name, own in of_rank.items():
            shares[name] += [server.busy_s[name] / seconds for server in own]
    return {name: sum(own) / len(own) for name, own in shares.items()}


def _running(
    servers: Sequence[Mapping[str, Sequence[Server]]],
) -> dict[str, list[tuple[float, int]]]:
    """Return how many sequences of each model are being written, from moment to moment."""
    changes: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for server in dict.fromkeys(
        server for of_rank in servers for own in of_rank.values() for server in own
    ):
        for moment, model, change in server.changes:
            changes[model].append((moment, change))
    return {
        model: [
            (moment, total)
            for (moment, _), total in zip(own, itertools.accumulate(c for _, c in own), strict=True)
        ]
        for model, own in ((model, sorted(found)) for model, found in changes.items())
    }


def _tail(ends: Sequence[float], seconds: float) -> float:
    """Return the share of the time in which at most a tenth of the episodes was left."""
    ordered = sorted(ends)
    return 1 - ordered[-1 - int(_TAIL * len(ordered))] / seconds


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[int(0.95 * (len(ordered) - 1))]


def _tokens(config: Config, workload: Workload, trees: Sequence[RolloutTree]) -> dict[str, int]:
    """Return the tokens that updates of each base model read: a prompt once for its candidates."""
    base = {name: group[0] for group in base_groups(config.models) for name in group}
    found: defaultdict[str, float] = defaultdict(float)
    for decision in (decision for tree in trees for decision in tree.decisions):
        written = sum(len(candidate.completion.token_ids) for candidate in decision.candidates)
        copies = 1 if config.optimizer.packing else len(decision.candidates)
        tokens = copies * len(decision.prompt_ids) + written
        used = workload.used[decision.key.agent] * config.optimizer.num_epochs
        found[base[decision.policy]] += used * tokens
    return {name: round(tokens) for name, tokens in found.items()}


def _optimizer_steps(
    config: Config, workload: Workload, trees: Sequence[RolloutTree]
) -> dict[str, int]:
    """Return the optimizer steps of each base model, all its policies together."""
    groups: defaultdict[str, float] = defaultdict(float)
    completions: defaultdict[str, float] = defaultdict(float)
    for decision in (decision for tree in trees for decision in tree.decisions):
        used = workload.used[decision.key.agent]
        groups[decision.policy] += used
        completions[decision.policy] += used * len(decision.candidates)
    base = {name: group[0] for group in base_groups(config.models) for name in group}
    found: defaultdict[str, int] = defaultdict(int)
    for name, num in completions.items():
        steps = config.optimizer.num_minibatches(round(num), round(groups[name]))
        found[base[name]] += config.optimizer.num_epochs * steps
    return dict(found)
