"""Train steps of a run on a fleet, in simulated time."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import NamedTuple

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.fleet.clock import VirtualLoop
from pettingllms_trainers.fleet.engine import Server
from pettingllms_trainers.fleet.flights import Flights, Flown
from pettingllms_trainers.fleet.learnt import learnt_tokens, optimizer_steps
from pettingllms_trainers.fleet.places import (
    Fleet,
    Place,
    learning_gpus,
    num_players,
    place_of,
)
from pettingllms_trainers.fleet.speeds import EngineSpeed, LearningSpeed
from pettingllms_trainers.fleet.workload import Workload
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.candidates import (
    FailureLog,
    RolloutSettings,
    RolloutSpec,
    episode_specs,
)
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.player import EpisodeBatch, joined, play_all, play_share
from pettingllms_trainers.rollout.sampler import InFlightRollouts, sampling_of
from pettingllms_trainers.runs.metrics.rollouts import age_metrics
from pettingllms_trainers.types import RolloutTree

_NUM_ROUNDS = 2
"""So many times what is in flight is averaged over."""
_TAIL = 0.1
"""The tail of rollouts begins when so few of the episodes are left."""


class Speeds(NamedTuple):
    """What each base model takes."""

    engines: Mapping[str, EngineSpeed]
    """By the first policy of the base model, as in all that follows."""
    learning: Mapping[str, LearningSpeed]


class Rollouts(NamedTuple):
    """Rollouts of a train step; with `rollout.max_staleness` above 1 of several in flight."""

    seconds: float
    """Until they are complete; in flight, between those of two train steps."""
    busy: Mapping[str, float]
    """Base model to the share of this time in which its engines had something to write."""
    tail: float
    """Share of the time in which at most a tenth of the episodes was left; 0 where others fly."""
    level_s: tuple[float, float]
    """Median and 95th percentile of an episode, from its beginning to its end."""
    num_tokens: Mapping[str, int]
    """Base model to what is read and written once for the update, by all its policies."""
    num_answer_tokens: Mapping[str, int]
    """Base model to what of that is written."""
    num_optimizer_steps: Mapping[str, int]
    """Base model to the optimizer steps of all its policies."""
    num_completion_tokens: int
    env_busy: float
    """Share of the time in which environments' workers were busy, all of them together."""
    running: Mapping[str, Sequence[tuple[float, int]]]
    """Base model to moments and the sequences that were written from then on."""
    stale: float = 0.0
    """Share of the episodes that are given up as stragglers."""
    player_s: float = 0.0
    """What the process that plays computes itself, as far as it is known: see `step_on`."""
    age: float = 0.0
    """Updates between the first token of an answer and the update that learns from it, a mean."""


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
    places = [
        place_of(config, environment, workload, fleet, engines)
        for _ in range(num_players(config, fleet))
    ]
    most = config.rollout.max_staleness
    if most > 1 and config.plays_beside_updates and fleet.learn:
        play = partial(_in_flight, config, environment, places[0])
        must_drain = not config.swaps_within_answers
        flown = await Flights(play, most, must_drain=must_drain).fly(_NUM_ROUNDS * most)
        steps = enumerate(flown.trees, most + 1)
        age = fmean(age_metrics(trees, step)["rollout/mean_age"] for step, trees in steps)
    else:
        trees = await _at_once(config, environment, places)
        flown = Flown(0.0, asyncio.get_running_loop().time(), [trees])
        age = (1 + most) / 2 if most else 0.0  # as many steps are played at once
    return _seen(config, workload, places, flown)._replace(age=age)


async def _at_once(
    config: Config, environment: RunEnvironment, places: Sequence[Place]
) -> list[RolloutTree]:
    """Play one train step, of which each place has a share of the levels."""
    size, specs = config.algorithm.episodes_per_level, _specs(config, 0)
    levels = [specs[first : first + size] for first in range(0, len(specs), size)]
    settings = _settings(config, environment)
    plays = [
        _of(config, place, [s for level in levels[rank :: len(places)] for s in level], settings)
        for rank, place in enumerate(places)
    ]
    found = await asyncio.gather(*(play_all([play], FailureLog(), Ranks()) for play in plays))
    return list(itertools.chain(*found))


async def _in_flight(
    config: Config, environment: RunEnvironment, place: Place, in_flight: InFlightRollouts
) -> list[RolloutTree]:
    """Play a train step that shares the engines with others."""
    settings = replace(_settings(config, environment), answering=in_flight.answering)
    play = _of(config, place, _specs(config, in_flight.pending.step), settings)
    share = await play_share([play], FailureLog(), Ranks(), in_flight.play)
    return joined(share, FailureLog(), Ranks())


def _seen(config: Config, workload: Workload, places: Sequence[Place], flown: Flown) -> Rollouts:
    """Return what was seen: of a train step what the steps have on average."""
    trees, num, end_s = list(itertools.chain(*flown.trees)), len(flown.trees), flown.end_s
    episodes = [place.episodes for place in places]
    spans = [span for one in episodes for span in one.spans if num == 1 or span[1] < end_s]
    num_begun = num * config.rollout.num_levels * config.algorithm.episodes_per_level
    servers = [place.servers for place in places]
    tokens, answers = learnt_tokens(config, workload, trees)
    return Rollouts(
        (end_s - flown.begin_s) / num,
        _busy(servers, end_s),
        _tail([end for _, end in spans], end_s) if num == 1 else 0.0,
        _percentiles([end - begin for begin, end in spans]),
        {name: round(x / num) for name, x in tokens.items()},
        {name: round(x / num) for name, x in answers.items()},
        {name: round(x / num) for name, x in optimizer_steps(config, workload, trees).items()},
        _num_written(trees) // num,
        sum(one.worked_s for one in episodes) / (end_s * config.num_env_workers(len(places))),
        _running(servers),
        1 - len(trees) / num_begun,
        (sum(one.player_s for one in episodes) + sum(one.client_s for one in _all(servers))) / num,
    )


def _num_written(trees: Sequence[RolloutTree]) -> int:
    return sum(
        len(c.completion.token_ids) for t in trees for d in t.decisions for c in d.candidates
    )


def _specs(config: Config, step: int) -> list[RolloutSpec]:
    return episode_specs(
        seed=config.seed,
        step=step,
        first_level=step * config.rollout.num_levels,
        num_levels=config.rollout.num_levels,
        num_trajectories=config.algorithm.episodes_per_level,
    )


def _of(
    config: Config, place: Place, specs: Sequence[RolloutSpec], settings: RolloutSettings
) -> EpisodeBatch:
    return EpisodeBatch(
        place.episodes, place.pool, specs, settings, config.algorithm.strategy(StepContext())
    )


def step_on(config: Config, rollouts: Rollouts, fleet: Fleet, speeds: Speeds) -> StepTimes:
    """Return a train step: rollouts, updates and the way of new weights to the engines.

    Args:
        config: The run.
        rollouts: Its rollouts on the fleet.
        fleet: On what.
        speeds: What learning takes.
    """
    gpus = learning_gpus(config, fleet)
    update_s = {
        name: speeds.learning[name].update_s(
            rollouts.num_optimizer_steps.get(name, 0),
            rollouts.num_tokens.get(name, 0) / num,
            rollouts.num_answer_tokens.get(name, 0) / num,
        )
        for name, num in gpus.items()
    }
    sync_s = max(speeds.learning[name].sync_s for name in gpus)
    is_ahead = config.plays_beside_updates and bool(fleet.learn)
    # On shared GPUs policies learn one after another, on their own all at the same time.
    learn_s = sum(update_s.values()) if fleet.num_shared else max(update_s.values())
    # A process that plays and learns does both at half the speed where they meet.
    met_s = rollouts.player_s * min(1.0, learn_s / rollouts.seconds)
    beside_s = max(rollouts.seconds + met_s, learn_s + rollouts.player_s)
    step_s = beside_s if is_ahead else rollouts.seconds + learn_s
    return StepTimes(fleet, rollouts, update_s, sync_s, step_s + sync_s, is_ahead)


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


def _all(servers: Sequence[Mapping[str, Sequence[Server]]]) -> Iterable[Server]:
    return dict.fromkeys(one for of_rank in servers for own in of_rank.values() for one in own)


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
    for server in _all(servers):
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
