"""The fleet of a run: what each split of its GPUs takes and costs, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pettingllms_trainers.backends.device import computes_on_gpu, with_fast_precision
from pettingllms_trainers.backends.hf.shapes import ModelShape
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import Algorithm
from pettingllms_trainers.config.announced import algorithm_class, algorithm_names
from pettingllms_trainers.config.policies import base_groups
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.fleet.here import measured_here
from pettingllms_trainers.fleet.places import Fleet, learning_gpus
from pettingllms_trainers.fleet.search import Found, Trial, check_size, fastest, sizes
from pettingllms_trainers.fleet.simulate import (
    Rollouts,
    Speeds,
    StepTimes,
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

HERE = "here"
"""Instead of a kind of GPU: this machine, on which train steps are taken first."""
_NUM_MEASURED = 4


class FleetPlan(NamedTuple):
    """What is planned."""

    workload: str
    """Where it comes from."""
    models: tuple[str, ...]
    """Base models: the policies of each."""
    gpu: str
    """A key of `GPUS`, or `HERE`."""
    usd_per_hour: float
    """Of one GPU."""
    num_steps: int
    found: tuple[Found, ...]
    """By the number of GPUs, the largest last."""
    range_s: tuple[float, float]
    """A train step on the fastest fleet, with the best and the worst reached shares of the data
    sheet."""
    algorithms: Mapping[str, StepTimes]
    """Algorithms with their default parameters on the fastest fleet."""

    def usd(self, num_gpus: int, step: StepTimes) -> float:
        """Return what the run's train steps cost."""
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
        config: The run.
        num_gpus: At most.
        gpu: A key of `GPUS`, or `HERE`: then the one fleet is this machine.
        usd_per_hour: Of one GPU; None: see `GPUS`. 0 for this machine.
        recorded: Directory of a run that says how long prompts and answers are.

    Raises:
        ConfigError: No fleet of this size can hold the models, or bad input.
    """
    check_size(num_gpus)
    if gpu not in (*GPUS, HERE):
        raise ConfigError(f"--gpu is {gpu!r}; known are {', '.join((*GPUS, HERE))}")
    on_gpu = gpu != HERE or computes_on_gpu(config, 1)
    config, _ = with_fast_precision(config, Ranks(), on_gpu=on_gpu)
    environments = make_environments(config)
    if gpu == HERE:
        return _plan_here(config, environments)
    planner = _Planner(config, environments, GPUS[gpu], recorded)
    found: list[Found] = []
    for size in sizes(num_gpus):
        larger = found[-1].steps[0].fleet if found and found[-1].steps else None
        found.append(fastest(config, size, planner.trial(USUAL), larger))
    fitting = [one for one in reversed(found) if one.steps]
    if not fitting:
        raise ConfigError(
            f"no fleet of up to {num_gpus} {gpu} holds this run: {planner.reason}. Take adapters "
            "(lora.rank), deepspeed.stage = 3, engine.vllm.tensor_parallel_size, or more GPUs"
        )
    best = min((one.steps[0] for one in fitting), key=lambda step: step.step_s)
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
        servers = [len(policy.endpoints) for policy in config.models.values()]
        fleet = Fleet(tuple(servers), (1,) * len(servers))

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
    """Return the run with each announced algorithm and its default parameters."""
    for name in algorithm_names():
        kind: type[Algorithm] = algorithm_class(name)
        yield name, config.model_copy(update={"algorithm": kind(name=name)})


def bottleneck(step: StepTimes) -> str:
    """Return what a train step waits for most, for people."""
    rollouts, learn_s = step.rollouts, max(step.update_s.values())
    if learn_s > rollouts.seconds:
        return f"the update of {max(step.update_s, key=lambda name: step.update_s[name])}"
    if rollouts.env_busy > 0.8:
        return "environment workers (rollout.env_threads; with Ray ray.num_env_workers)"
    name = max(rollouts.busy, key=lambda model: rollouts.busy[model])
    if rollouts.busy[name] > 0.7:
        return f"the engines of {name}"
    return "the longest answers" if rollouts.tail > 0.25 else "episodes that wait for each other"


class _Planner:
    """Simulates fleets of a run; rollouts on equal engines are played once."""

    def __init__(
        self,
        config: Config,
        environments: Sequence[RunEnvironment],
        gpu: Gpu,
        recorded: Path | None,
    ) -> None:
        self._config, self._environments, self._gpu = config, environments, gpu
        self._plan = make_plan(config, environments, num_gpus=1, gpu_gib=gpu.num_bytes / (1 << 30))
        self._names = [group[0] for group in base_groups(config.models)]
        self._rollouts: dict[tuple[Efficiency, Fleet], Rollouts] = {}
        self.workload: Workload = (
            from_script(config, environments)
            if recorded is None
            else from_run(config, environments, recorded)
        )
        self.reason = ""
        """Why the last fleet that was refused cannot hold the run."""

    def trial(self, reached: Efficiency) -> Trial:
        """Return what simulates a fleet with some shares of the data sheet."""
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
        """Return the train step of each announced algorithm with its default parameters."""
        speeds = self._speeds(USUAL)
        for name, config in _with_algorithms(self._config):
            yield name, step_on(config, self._played(config, fleet, speeds), fleet, speeds)

    def _played(self, config: Config, fleet: Fleet, speeds: Speeds) -> Rollouts:
        environment = self._environments[0]
        return rollouts_on(config, environment, self.workload, fleet, speeds.engines)

    def _speeds(self, reached: Efficiency) -> Speeds:
        shapes: dict[str, ModelShape] = {name: self._plan.shapes[name] for name in self._names}
        shards = self._config.engine.num_shards
        how = {
            "is_recomputed": self._config.resolved_loss.old_logprobs == "recompute",
            "is_checkpointed": self._config.optimizer.gradient_checkpointing,
        }
        return Speeds(
            {name: engine_of(shape, self._gpu, shards, reached) for name, shape in shapes.items()},
            {name: learning_of(shape, self._gpu, reached, **how) for name, shape in shapes.items()},
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
            own = memory.policies[name]
            needed = own.kept + own.passing if fleet.learn else memory.peak
            if needed > limit:
                what = f"{name} learns" if fleet.learn else "a process generates and learns"
                self.reason = (
                    f"{what} with {needed / 1e9:.0f} GB on each of {num_ranks} GPUs of "
                    f"{self._gpu.num_bytes / 1e9:.0f} GB"
                )
                return False
        return True
