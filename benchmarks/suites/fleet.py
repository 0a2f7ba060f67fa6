"""Is the planner of fleets right? Against closed forms, and against train steps on this machine.

    python benchmarks/suites/fleet.py [--steps 6] [--arrivals 200000]

Closed forms: the mean time in a processor-sharing queue with Poisson arrivals (M/M/1), by the
simulated server. This machine: engine, update and environment are fitted to the train steps of one
setting of `recipe:plan_path` after its warm start; the train steps of other settings are then
planned and measured. Written are medians over rounds, each with a fit of its own, of the medians of
the measured steps. One thread does all of it, so that seconds are CPU seconds of the process, for
which other work on the machine counts less.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest import mock

import measuring
from measuring import frame, parser_of, timed, write

from pettingllms_trainers import commands
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.fleet.here import Here, measured_here
from pettingllms_trainers.fleet.planner import bottleneck, plan_fleet
from pettingllms_trainers.fleet.simulate import Fleet, Server, VirtualLoop, rollouts_on, step_on
from pettingllms_trainers.fleet.speeds import EngineSpeed
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.environments import RunEnvironment, make_environments
from pettingllms_trainers.runs.measuring import measured

RECIPE = "recipe:plan_path"
QUIET = ("--logging.progress=off", "--logging.no-tensorboard", "--num-threads=1")
BASE = ("--warm-start.num-steps=0", "--evaluation.num-episodes=2", *QUIET)
FITTED = "32 levels, K 4"
SETTINGS = {
    FITTED: ("--rollout.num-levels=32", "--algorithm.num-candidates=4"),
    "8 levels, K 4": ("--rollout.num-levels=8", "--algorithm.num-candidates=4"),
    "32 levels, K 2": ("--rollout.num-levels=32", "--algorithm.num-candidates=2"),
    "32 levels, K 8": ("--rollout.num-levels=32", "--algorithm.num-candidates=8"),
    "8 levels, K 8": ("--rollout.num-levels=8", "--algorithm.num-candidates=8"),
    "64 levels, K 4": ("--rollout.num-levels=64", "--algorithm.num-candidates=4"),
    "32 levels, whole episodes, K 4": (
        "--rollout.num-levels=32",
        "--algorithm.name=reinforce",
        "--algorithm.num-candidates=4",
    ),
}
PAPER = [
    f"recipe:paper/{n}" for n in ("paper", "tasks/plan_path", "models/qwen3_8b", "training/lora")
]
HERE = Fleet((), (), 1)
LOADS = (0.2, 0.4, 0.6)
PLANS = ((PAPER, 8), (["recipe:gpus/64"], 64), (["recipe:gpus/64"], 512))
NUM_ROUNDS = 3
NUM_PLAYED = 8
"""Train steps that a prediction is a mean over."""


def main() -> None:
    parser = parser_of("fleet", __doc__)
    parser.add_argument("--steps", type=int, default=6, help="of a setting")
    parser.add_argument("--arrivals", type=int, default=200_000)
    options = parser.parse_args()
    result = frame("fleet", [0])
    result["queues"] = [queue(load, options.arrivals) for load in LOADS]
    result["plans"] = [plan(*one) for one in PLANS]
    # The plan is of seconds that nothing else takes.
    with mock.patch("time.perf_counter", time.process_time):
        result["machine"] = machine(options.steps)
    write(result, options.output)
    for name in ("queues", "plans", "machine"):
        print(name, *result[name], sep="\n  ")


def queue(load: float, num_arrivals: int) -> dict[str, float]:
    """The mean time in a queue, simulated and calculated."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        simulated = runner.run(_mean_time(load, num_arrivals))
    return {"load": load, "calculated": 1 / (1 - load), "simulated": round(simulated, 4)}


async def _mean_time(load: float, num_arrivals: int) -> float:
    """The mean time of jobs that take 1 s alone on average and share a server."""
    rng, length = random.Random(0), 1000.0
    server = Server({"m": EngineSpeed(token_s=1 / length)})
    loop, times = asyncio.get_running_loop(), list[float]()

    async def job(num_tokens: int) -> None:
        begun = loop.time()
        await server.write("m", 0, [num_tokens])
        times.append(loop.time() - begun)

    async with asyncio.TaskGroup() as jobs:
        for _ in range(num_arrivals):
            await asyncio.sleep(rng.expovariate(load))
            jobs.create_task(job(max(1, round(rng.expovariate(1 / length)))))
    return sum(times) / len(times)


def plan(names: Sequence[str], num_gpus: int) -> dict[str, Any]:
    """The fastest fleet of up to so many GPUs, what it waits for, and what planning took."""
    spent, found = timed(lambda: plan_fleet(load_config(names), num_gpus=num_gpus, gpu="h100"))
    size, steps = found.found[-1]
    fleet = steps[0].fleet
    return {
        "recipe": names[-1] if len(names) == 1 else "recipe:paper/paper, ...",
        "num_gpus": size,
        "num_fleets": sum(len(one.steps) for one in found.found),
        "generate": fleet.num_shared or list(fleet.generate),
        "learn": list(fleet.learn) or "same",
        "step_s": round(steps[0].step_s, 1),
        "range_s": [round(end, 1) for end in found.range_s],
        "busy": {name: round(share, 3) for name, share in steps[0].rollouts.busy.items()},
        "env_busy": round(steps[0].rollouts.env_busy, 4),
        "usd": round(found.usd(size, steps[0])),
        "num_steps": found.num_steps,
        "waits_for": bottleneck(steps[0]),
        "slowest_s": round(steps[-1].step_s, 1),
        "cpu_s": round(spent.cpu_s, 1),
    }


def machine(num_steps: int) -> list[dict[str, Any]]:
    """The train steps of all settings, predicted from the first and measured."""
    with tempfile.TemporaryDirectory() as folder:
        warm = load_config(RECIPE, [*QUIET, "--output-dir", f"{folder}/warm"])
        # Untrained policies write no answer that ends.
        commands.warm_start(warm)
        models = [
            f"--policies.{name}.model={Path(folder, 'warm', 'policies', name)}"
            for name in warm.models
        ]
        configs = {
            name: load_config(RECIPE, [*BASE, *models, *flags]) for name, flags in SETTINGS.items()
        }
        environments = make_environments(configs[FITTED])
        planned_s: dict[str, list[float]] = {name: [] for name in configs}
        measured_s: dict[str, list[float]] = {name: [] for name in configs}
        # Each with a fit of its own: a machine is not as fast in every hour.
        for _ in range(NUM_ROUNDS):
            fitted = measured_here(configs[FITTED], environments, num_steps=num_steps)
            for name, config in configs.items():
                planned_s[name].append(planned(config, fitted, environments[0], HERE))
                found = measured(config, environments, Ranks(), num_steps=1 + num_steps)
                # Without the first train step, which has much to load.
                measured_s[name].append(median(step["time/step_s"] for step in found.steps[1:]))
                print(name, planned_s[name][-1], measured_s[name][-1], flush=True)
    return [{"setting": name, **compared(planned_s[name], measured_s[name])} for name in configs]


def compared(planned_s: Sequence[float], measured_s: Sequence[float]) -> dict[str, Any]:
    """Planned train steps beside those that were measured, round by round."""
    return {
        "planned_s": measuring.spread(planned_s),
        "measured_s": measuring.spread(measured_s),
        "planned_over_measured": measuring.ratios(planned_s, measured_s),
    }


def planned(config: Config, fitted: Here, environment: RunEnvironment, fleet: Fleet) -> float:
    """The seconds of a train step, a mean over as many as are played."""
    steps: list[float] = []
    # One draw of lengths says little about the next.
    for seed in range(NUM_PLAYED):
        own = config.model_copy(update={"seed": seed})
        found = rollouts_on(own, environment, fitted.workload, fleet, fitted.speeds.engines)
        steps.append(step_on(own, found, fleet, fitted.speeds).step_s)
    return fmean(steps)


if __name__ == "__main__":
    main()
