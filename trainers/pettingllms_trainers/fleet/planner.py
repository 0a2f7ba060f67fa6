"""Which GPUs for which role: fleets of a size, tried one by one, and the fastest of them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from transformers.utils import logging as transformers_logging

from pettingllms.errors import counted
from pettingllms_trainers.backends.build import memory_advice
from pettingllms_trainers.backends.device import computes_on_gpu, with_fast_precision
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import algorithm_names
from pettingllms_trainers.config.loading import config_of
from pettingllms_trainers.config.sections import base_groups
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.fleet.here import measured_here
from pettingllms_trainers.fleet.simulate import (
    Fleet,
    Rollouts,
    Speeds,
    StepTimes,
    learning_bases,
    learning_gpus,
    rollouts_on,
    step_on,
)
from pettingllms_trainers.fleet.speeds import (
    FAST,
    GPUS,
    SLOW,
    USUAL,
    Efficiency,
    Gpu,
    engine_of,
    learning_of,
)
from pettingllms_trainers.fleet.workload import Workload, from_run, from_script
from pettingllms_trainers.plan import make_plan
from pettingllms_trainers.plan.memory import USABLE, plan_memory
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.environments import RunEnvironment, make_environments

_NUM_UNITS, _FINEST = 8, 32
"""A fleet is divided into so many parts at first, which are moved between roles, and at last."""
_NUM_SIZES = 4

Trial = Callable[[Fleet], StepTimes | None]
"""Simulates a train step on a fleet; None: its memory is too small."""


class Found(NamedTuple):
    """The fleets that were tried with a number of GPUs."""

    num_gpus: int
    """GPUs of each fleet."""
    steps: tuple[StepTimes, ...]
    """A train step on each fleet that has enough memory, fastest first."""


def fastest(config: Config, num_gpus: int, trial: Trial, larger: Fleet | None = None) -> Found:
    """Try fleets of a size: shared GPUs, and splits over the base models that generate and learn.

    All splits in eighths are tried. Around the fastest, smaller parts are moved, down to a 32nd, as
    long as that is faster.

    Args:
        config: The run.
        num_gpus: GPUs of each fleet.
        trial: Simulates a train step on a fleet.
        larger: The fastest fleet of twice the size: with more than 8 GPUs its halves are tried
            first.
    """
    tried: dict[Fleet, StepTimes | None] = {}

    def tries(fleets: Iterator[Fleet]) -> list[StepTimes]:
        for fleet in fleets:
            if fleet not in tried:
                tried[fleet] = trial(fleet)
        return sorted((step for step in tried.values() if step), key=lambda step: step.step_s)

    # Coarse first: all splits of 64 GPUs among four parts would be 40,000.
    unit = max(1, num_gpus // _NUM_UNITS)
    if larger is None or num_gpus <= _NUM_UNITS:
        ordered = tries(_fleets(config, num_gpus, unit))
    else:
        ordered = tries(_halved(config, larger, num_gpus))
    while unit > max(1, num_gpus // _FINEST):
        unit //= 2
        # Uphill from the best: times are nearly convex in how GPUs are divided.
        best = None
        while ordered and ordered[0] is not best and ordered[0].fleet.learn:
            best = ordered[0]
            ordered = tries(_neighbours(best.fleet, unit, config.engine.num_shards))
    return Found(num_gpus, tuple(ordered))


def sizes(num_gpus: int) -> list[int]:
    """The numbers of GPUs that are looked at: all, and halves down to an eighth."""
    return [num_gpus >> k for k in range(_NUM_SIZES) if num_gpus >> k]


def _fleets(config: Config, num_gpus: int, unit: int) -> Iterator[Fleet]:
    shards, num_models = config.engine.num_shards, len(base_groups(config.models))
    yield from _in_turn(config, num_gpus)
    if config.engine.has_copy:
        for parts in _divided(num_gpus // unit, num_models + len(learning_bases(config))):
            yield from _split([part * unit for part in parts], num_models, shards)


def _in_turn(config: Config, num_gpus: int) -> Iterator[Fleet]:
    """The fleet whose GPUs generate and then learn: with Ray every base model has its own.

    A worker of one of several policies has a GPU for itself unless there are too few of them.
    """
    num, num_models = num_gpus // config.engine.num_shards, len(base_groups(config.models))
    if config.engine.can.is_local and num:
        # With Ray a policy has workers of its own; without it, every process has all policies.
        is_apart = config.ray.enabled and num >= num_models
        yield Fleet((num // num_models,) * num_models, ()) if is_apart else Fleet((), (), num)


def _halved(config: Config, fleet: Fleet, num_gpus: int) -> Iterator[Fleet]:
    """What generates and learns in turn, and the halves of a split."""
    yield from _in_turn(config, num_gpus)
    if not fleet.learn:
        return
    shards = config.engine.num_shards
    parts = [*(number * shards // 2 for number in fleet.generate), *(n // 2 for n in fleet.learn)]
    # What halving rounds away goes to the last part, or the fleet would be too small.
    parts[-1] += num_gpus - sum(parts)
    yield from _split(parts, len(fleet.generate), shards)


def _neighbours(fleet: Fleet, unit: int, shards: int) -> Iterator[Fleet]:
    """The splits in which some GPUs have moved to another part."""
    parts = [*(number * shards for number in fleet.generate), *fleet.learn]
    for source, target in itertools.permutations(range(len(parts)), 2):
        moved = list(parts)
        moved[source] -= unit
        moved[target] += unit
        yield from _split(moved, len(fleet.generate), shards)


def _split(parts: Sequence[int], num_models: int, shards: int) -> Iterator[Fleet]:
    generate, learn = [part // shards for part in parts[:num_models]], parts[num_models:]
    if min((*generate, *learn)) > 0:
        yield Fleet(tuple(generate), tuple(learn))


def _divided(total: int, num: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of positive ones, in order."""
    for cuts in itertools.combinations(range(1, total), num - 1):
        ends = (0, *cuts, total)
        yield tuple(b - a for a, b in itertools.pairwise(ends))


HERE = "here"
"""Instead of a kind of GPU: this machine, on which train steps are taken first."""
_NUM_MEASURED = 4


class FleetPlan(NamedTuple):
    """How long a run takes on which fleets."""

    workload: str
    """Where the simulated episodes come from, for people."""
    models: tuple[str, ...]
    """Names of the policies of each base model."""
    gpu: str
    """A key of `GPUS`, or `HERE`."""
    usd_per_hour: float
    """Price of one GPU."""
    num_steps: int
    found: tuple[Found, ...]
    """Fleets by the number of GPUs, the largest last."""
    range_s: tuple[float, float]
    """Shortest and longest seconds of a train step on the fastest fleet: at the best and the worst
    `Efficiency`, or as measured here."""
    algorithms: Mapping[str, StepTimes]
    """Name of an algorithm to a train step with its default parameters on the fastest fleet."""

    def usd(self, num_gpus: int, step: StepTimes) -> float:
        """US dollars that the train steps of the run cost if each takes as long as this one."""
        return num_gpus * self.usd_per_hour * step.step_s * self.num_steps / 3600


def plan_fleet(
    config: Config,
    *,
    num_gpus: int,
    gpu: str,
    usd_per_hour: float | None = None,
    recorded: Path | None = None,
) -> FleetPlan:
    """Plan a run on fleets of up to a number of GPUs.

    Args:
        num_gpus: At most.
        gpu: A key of `GPUS`, or `HERE`: then the one fleet is this machine.
        usd_per_hour: Of one GPU; None: see `GPUS`. 0 for this machine.
        recorded: Directory of a run that says how long prompts and answers are.

    Raises:
        ConfigError: No fleet of this size can hold the models, or bad input.
    """
    if num_gpus < 1:
        raise ConfigError(f"--gpus is {num_gpus}; at least 1 is needed")
    if gpu not in (*GPUS, HERE):
        raise ConfigError(f"--gpu is {gpu!r}; known are {', '.join((*GPUS, HERE))}")
    transformers_logging.disable_progress_bar()
    on_gpu = gpu != HERE or computes_on_gpu(config, 1)
    config, _ = with_fast_precision(config, Ranks(), on_gpu=on_gpu)
    if not learning_bases(config):
        raise ConfigError("all policies are frozen, so that there is no train step to plan")
    environments = make_environments(config)
    if gpu == HERE:
        return _plan_here(config, environments)
    planner = _Planner(config, environments, GPUS[gpu], recorded)
    found: list[Found] = []
    for size in sizes(num_gpus):
        # Sizes halve, so that the best split of the last one is a good start for this one.
        larger = found[-1].steps[0].fleet if found and found[-1].steps else None
        found.append(fastest(config, size, planner.trial(USUAL), larger))
    fitting = [one for one in reversed(found) if one.steps]
    if not fitting:
        raise ConfigError(
            f"no fleet of up to {num_gpus} {gpu} holds this run: {planner.reason}. What helps: "
            f"{', '.join(memory_advice(config, num_gpus))}, or more or larger GPUs"
        )
    best = min((one.steps[0] for one in fitting), key=lambda step: step.step_s)
    # One fleet, two data sheets: the range is of speeds, not of splits.
    reached = [planner.trial(each)(best.fleet) for each in (FAST, SLOW)]
    low, high = (step.step_s for step in reached if step is not None)
    return FleetPlan(
        workload=planner.workload.source,
        models=tuple(", ".join(group) for group in base_groups(config.models)),
        gpu=gpu,
        usd_per_hour=GPUS[gpu].usd_per_hour if usd_per_hour is None else usd_per_hour,
        num_steps=config.num_steps,
        found=tuple(fitting),
        range_s=(low, high),
        algorithms=dict(planner.algorithms(best.fleet)),
    )


def _plan_here(config: Config, environments: Sequence[RunEnvironment]) -> FleetPlan:
    """Plan a run on this machine: algorithms other than its own, mostly."""
    here, fleet = measured_here(config, environments, num_steps=_NUM_MEASURED), Fleet((), (), 1)
    if not config.engine.can.is_local:
        (policy,) = config.models.values()  # seconds of several cannot be told apart
        fleet = Fleet((len(policy.endpoints),), (1,))

    def step(own: Config) -> StepTimes:
        engines = here.speeds.engines
        found = rollouts_on(own, environments[0], here.workload, fleet, engines)
        return step_on(own, found, fleet, here.speeds)

    return FleetPlan(
        workload=here.workload.source,
        models=tuple(", ".join(group) for group in base_groups(config.models)),
        gpu=HERE,
        usd_per_hour=0.0,
        num_steps=config.num_steps,
        found=(Found(1, (step(config),)),),
        range_s=(min(here.step_s), max(here.step_s)),
        algorithms={name: step(own) for name, own in _with_algorithms(config)},
    )


def _with_algorithms(config: Config) -> Iterator[tuple[str, Config]]:
    """The run with each announced algorithm and its default parameters, where it allows them."""
    table = config.model_dump(mode="json", exclude_none=True, exclude={"algorithm"})
    for name in algorithm_names():
        with contextlib.suppress(ConfigError):  # such as V of a fixed policy
            yield name, config_of(table, {"algorithm": {"name": name}})


def bottleneck(step: StepTimes) -> str:
    """What a train step waits for most, for people."""
    rollouts, learn_s = step.rollouts, max(step.update_s.values())
    # In the order in which it helps: a busy engine does not matter while learning takes longer.
    if learn_s > rollouts.seconds:
        return f"the update of {max(step.update_s, key=lambda name: step.update_s[name])}"
    if rollouts.env_busy > 0.8:
        return "environment workers (rollout.env_threads; with Ray ray.num_env_workers)"
    name = max(rollouts.busy, key=lambda model: rollouts.busy[model])
    if rollouts.busy[name] > 0.7:
        return f"the engines of {name}"
    return "the longest answers" if rollouts.tail > 0.25 else "episodes that wait for each other"


class _Planner:
    """Simulates fleets of a run; rollouts on equal engines are simulated once."""

    def __init__(
        self,
        config: Config,
        environments: Sequence[RunEnvironment],
        gpu: Gpu,
        recorded: Path | None,
    ) -> None:
        self._config, self._environments, self._gpu = config, environments, gpu
        self._plan = make_plan(config, environments, num_gpus=1, gpu_gib=gpu.num_bytes / (1 << 30))
        self._rollouts: dict[tuple[Efficiency, Fleet], Rollouts] = {}
        self.workload: Workload = (
            from_script(config, environments)
            if recorded is None
            else from_run(config, environments, recorded)
        )
        self.reason = ""
        """Why the last fleet that was refused cannot hold the run."""

    def trial(self, reached: Efficiency) -> Trial:
        """What simulates a fleet with some shares of the data sheet."""
        speeds = self._speeds(reached)

        def simulate(fleet: Fleet) -> StepTimes | None:
            if not self._fits(fleet):
                return None
            # How many GPUs learn does not matter to rollouts, but whether they do meanwhile.
            key = reached, fleet._replace(learn=(1,) * bool(fleet.learn))
            if key not in self._rollouts:
                self._rollouts[key] = self._played(self._config, fleet, speeds)
            return step_on(self._config, self._rollouts[key], fleet, speeds)

        return simulate

    def algorithms(self, fleet: Fleet) -> Iterator[tuple[str, StepTimes]]:
        """The train step of each announced algorithm with its default parameters."""
        speeds = self._speeds(USUAL)
        for name, config in _with_algorithms(self._config):
            yield name, step_on(config, self._played(config, fleet, speeds), fleet, speeds)

    def _played(self, config: Config, fleet: Fleet, speeds: Speeds) -> Rollouts:
        environment = self._environments[0]
        return rollouts_on(config, environment, self.workload, fleet, speeds.engines)

    def _speeds(self, reached: Efficiency) -> Speeds:
        shapes, shards = self._plan.shapes, self._config.engine.num_shards
        names = [group[0] for group in base_groups(self._config.models)]
        how = {
            "is_recomputed": self._config.resolved_loss.old_logprobs == "recompute",
            "is_checkpointed": self._config.optimizer.gradient_checkpointing,
        }
        return Speeds(
            {name: engine_of(shapes[name], self._gpu, shards, reached) for name in names},
            {
                base: learning_of(shapes[trained[0]], self._gpu, reached, **how)
                for base, trained in learning_bases(self._config).items()
            },
        )

    def _fits(self, fleet: Fleet) -> bool:
        limit = USABLE * self._gpu.num_bytes
        for name, num_ranks in learning_gpus(self._config, fleet).items():
            memory = plan_memory(
                self._config,
                self._plan.shapes,
                self._plan.lengths,
                num_ranks=num_ranks,
                gpu_bytes=round(self._gpu.num_bytes),
                num_groups=self._plan.step.num_groups,
            )
            # GPUs that only learn hold one base; shared ones hold the fullest phase of all.
            needed = memory.learning[name] if fleet.learn else memory.peak
            if needed > limit:
                what = f"{name} learns" if fleet.learn else "a process generates and learns"
                self.reason = (
                    f"{what} with {needed / 1e9:.0f} GB on each of {counted(num_ranks, 'GPU')} of "
                    f"{self._gpu.num_bytes / 1e9:.0f} GB"
                )
                return False
        return True
