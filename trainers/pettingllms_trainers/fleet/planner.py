"""Which GPUs for which role: fleets of a size, tried one by one, and the fastest of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from transformers.utils import logging as transformers_logging

from pettingllms.errors import counted
from pettingllms_trainers.backends.build import memory_advice
from pettingllms_trainers.backends.device import for_device
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import base_groups
from pettingllms_trainers.errors import ConfigError
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

_NUM_PARTS = 8
"""GPUs move between generating and learning, and between models, in so many parts."""
_NUM_SIZES = 4


class FleetPlan(NamedTuple):
    """How long a run takes on which fleets."""

    workload: str
    """Where the simulated episodes come from, for people."""
    models: tuple[str, ...]
    """Names of the policies of each base model."""
    gpu: str
    """A key of `GPUS`."""
    usd_per_hour: float
    """Price of one GPU."""
    num_steps: int
    found: Mapping[int, Sequence[StepTimes]]
    """GPUs to a train step on each fleet of so many that has enough memory, fastest first; the
    most GPUs first."""
    range_s: tuple[float, float]
    """Seconds of a train step on the fastest fleet at the best and the worst `Efficiency`."""

    def hours(self, step: StepTimes) -> float:
        """Hours that the train steps of the run take if each takes as long as this one."""
        return step.step_s * self.num_steps / 3600

    def usd(self, num_gpus: int, step: StepTimes) -> float:
        """US dollars that they cost."""
        return num_gpus * self.usd_per_hour * self.hours(step)


def plan_fleet(
    config: Config,
    *,
    num_gpus: int,
    gpu: str,
    usd_per_hour: float | None = None,
    recorded: Path | None = None,
) -> FleetPlan:
    """Plan a run on fleets of a number of GPUs, of a half of them, a quarter and an eighth.

    Args:
        num_gpus: At most.
        gpu: A key of `GPUS`.
        usd_per_hour: Of one GPU; None: see `GPUS`.
        recorded: Directory of a run that says how long prompts and answers are.

    Raises:
        ConfigError: No fleet of this size can hold the models, or bad input.
    """
    if num_gpus < 1:
        raise ConfigError(f"--gpus is {num_gpus}; at least 1 is needed")
    if gpu not in GPUS:
        raise ConfigError(f"--gpu is {gpu!r}; known are {', '.join(GPUS)}")
    transformers_logging.disable_progress_bar()
    config, _ = for_device(config, Ranks(), on_gpu=True)
    if not learning_bases(config):
        raise ConfigError("all policies are frozen, so that there is no train step to plan")
    planner = Planner(config, make_environments(config), GPUS[gpu], recorded)
    sizes = [num_gpus >> k for k in range(_NUM_SIZES) if num_gpus >> k]
    found: dict[int, list[StepTimes]] = {}
    split: Sequence[int] = ()
    for size in sizes:
        if steps := planner.steps(size, split):
            found[size] = steps
            split = next((one.fleet.generate for one in steps if one.fleet.learn), ())
    if not found:
        raise ConfigError(
            f"no fleet of up to {num_gpus} {gpu} holds this run: {planner.reason}. What helps: "
            f"{', '.join(memory_advice(config, num_gpus))}, or more or larger GPUs"
        )
    best = min((steps[0] for steps in found.values()), key=lambda step: step.step_s)
    # One fleet, two data sheets: the range is of speeds, not of splits.
    low, high = (planner.step(best.fleet, reached).step_s for reached in (FAST, SLOW))
    return FleetPlan(
        workload=planner.workload.source,
        models=tuple(", ".join(group) for group in base_groups(config.models)),
        gpu=gpu,
        usd_per_hour=GPUS[gpu].usd_per_hour if usd_per_hour is None else usd_per_hour,
        num_steps=config.num_steps,
        found=found,
        range_s=(low, high),
    )


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


class Planner:
    """Simulates a run on fleets of a kind of GPU.

    Args:
        recorded: See `plan_fleet`.
    """

    def __init__(
        self,
        config: Config,
        environments: Sequence[RunEnvironment],
        gpu: Gpu,
        recorded: Path | None = None,
    ) -> None:
        self._config, self._environments, self._gpu = config, environments, gpu
        self._plan = make_plan(config, environments, num_gpus=1, gpu_gib=gpu.num_bytes / (1 << 30))
        self.workload: Workload = (
            from_script(config, environments)
            if recorded is None
            else from_run(config, environments, recorded)
        )
        self.reason = (
            f"{counted(len(base_groups(config.models)), 'base model')} with "
            f"{counted(config.engine.num_shards, 'GPU')} for each engine"
            + ", and others that learn"
            * (not config.engine.can.is_local)
        )
        """Why the last fleet cannot hold the run: by its memory, or none is so large."""

    def steps(self, num_gpus: int, larger: Sequence[int] = ()) -> list[StepTimes]:
        """A train step on each fleet that has enough memory, fastest first; see `fleets`."""
        speeds = self._speeds(USUAL)
        found: list[StepTimes] = []
        for fleet, num_learning in fleets(self._config, num_gpus, larger):
            if not num_learning and not self._fits(fleet):
                continue
            rollouts = self._rollouts(fleet, speeds)
            if num_learning:
                needed_s = {
                    base: num * speeds.learning[base].token_s
                    for base, num in rollouts.num_tokens.items()
                }
                learn = self.allotted(needed_s, num_learning)
                if learn is None:
                    continue
                fleet = fleet._replace(learn=learn)
            found.append(step_on(self._config, rollouts, fleet, speeds))
        return sorted(found, key=lambda step: step.step_s)

    def step(self, fleet: Fleet, reached: Efficiency) -> StepTimes:
        """A train step on a fleet with some shares of the data sheet."""
        speeds = self._speeds(reached)
        return step_on(self._config, self._rollouts(fleet, speeds), fleet, speeds)

    def _rollouts(self, fleet: Fleet, speeds: Speeds) -> Rollouts:
        environment = self._environments[0]
        return rollouts_on(self._config, environment, self.workload, fleet, speeds.engines)

    def allotted(self, needed_s: Mapping[str, float], num_gpus: int) -> tuple[int, ...] | None:
        """How many GPUs each base learns on, so that the last one is ready first.

        Args:
            needed_s: Base to the seconds that its updates take on one GPU.
            num_gpus: As many as bases, or more.

        Returns:
            None: the memory is too small.

        Source:
            One after another goes where it helps most, which is optimal here (Ibaraki and Katoh,
            Resource Allocation Problems, 1988, section 4.2).
        """
        num = dict.fromkeys(needed_s, 1)
        fits = {base: self._has_room(base, 1) for base in num}
        for _ in range(num_gpus - len(num)):
            # What does not fit comes first: sharded, it may.
            base = min(num, key=lambda name: (fits[name], -needed_s[name] / num[name]))
            num[base] += 1
            fits[base] = fits[base] or self._has_room(base, num[base])
        return tuple(num.values()) if all(fits.values()) else None

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
        """Whether GPUs that generate and then learn hold the run."""
        return all(
            self._has_room(None, number) for number in learning_gpus(self._config, fleet).values()
        )

    def _has_room(self, base: str | None, num_ranks: int) -> bool:
        """Whether each of some GPUs holds a base that learns, or the fullest phase of all."""
        memory = plan_memory(
            self._config,
            self._plan.shapes,
            self._plan.lengths,
            num_ranks=num_ranks,
            gpu_bytes=round(self._gpu.num_bytes),
            num_groups=self._plan.step.num_groups,
        )
        needed = memory.learning[base] if base else memory.peak
        if needed <= USABLE * self._gpu.num_bytes:
            return True
        what = f"{base} learns" if base else "a process generates and learns"
        self.reason = (
            f"{what} with {needed / 1e9:.0f} GB on each of {counted(num_ranks, 'GPU')} of "
            f"{self._gpu.num_bytes / 1e9:.0f} GB"
        )
        return False


def fleets(
    config: Config, num_gpus: int, larger: Sequence[int] = ()
) -> Iterator[tuple[Fleet, int]]:
    """Yield the fleets to try, each with the GPUs that learn, yet to be allotted.

    Without any, GPUs generate and then learn; with Ray every base model has its own of them, unless
    there are too few. Else whole parts generate for each base model, and what is left learns.

    Args:
        larger: Engines of each base model in the fastest split of twice as many GPUs: with many
            GPUs only its half is tried.
    """
    shards, num_models = config.engine.num_shards, len(base_groups(config.models))
    num, num_learning = num_gpus // shards, len(learning_bases(config))
    if config.engine.can.is_local and num:
        apart = Fleet((num // num_models,) * num_models, ())
        yield apart if config.ray.enabled and num >= num_models else Fleet((), (), num), 0
    if config.engine.has_copy:
        halved = [tuple(max(1, engines // 2) for engines in larger)]
        for engines in halved if larger and num_gpus > _NUM_PARTS else _divided(config, num_gpus):
            left = num_gpus - shards * sum(engines)
            if min(engines) and left >= num_learning:
                yield Fleet(engines, (1,) * num_learning), left


def _divided(config: Config, num_gpus: int) -> Iterator[tuple[int, ...]]:
    """Yield the engines of each base model, in whole parts of the GPUs, of which one is left."""
    shards, num_models = config.engine.num_shards, len(base_groups(config.models))
    unit = math.ceil(num_gpus / max(_NUM_PARTS, num_models + 1))
    for ends in itertools.combinations(range(unit, num_gpus, unit), num_models):
        yield tuple((end - start) // shards for start, end in itertools.pairwise((0, *ends)))
