"""Is the planner of fleets right? Against closed forms, and against train steps on this machine.

    python benchmarks/suites/fleet.py [--steps 6] [--arrivals 200000]

Closed forms: the mean time in a processor-sharing queue with Poisson arrivals (M/M/1), by the
simulated server. This machine: engine, update and environment are fitted to the train steps of one
setting of `recipe:plan_path` after its warm start; the train steps of other settings are then
predicted and measured, in turn. Written are medians over the measured steps. Wall times: the
machine should have nothing else to do.

Orders that others have published: the larger the spread of lengths, the longer the tail
(arXiv 2509.21009); and episodes that do not wait for each other take less time (arXiv 2602.09578).
"""

from __future__ import annotations

import asyncio
import math
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from measuring import frame, parser_of, write

from pettingllms_trainers import commands
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.fleet.clock import VirtualLoop
from pettingllms_trainers.fleet.engine import Server
from pettingllms_trainers.fleet.here import Here, measured_here
from pettingllms_trainers.fleet.places import Fleet
from pettingllms_trainers.fleet.simulate import rollouts_on, step_on
from pettingllms_trainers.fleet.speeds import GPUS, USUAL, EngineSpeed, engine_of
from pettingllms_trainers.fleet.workload import Step, Workload
from pettingllms_trainers.rollout.environments import make_environments

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
HERE = Fleet((), (), 1)
LOADS = (0.2, 0.4, 0.6)
NUM_DRAWS = 8
"""Workloads that each figure of the published orders is a mean over."""


def main() -> None:
    """Compare, and write the result."""
    parser = parser_of("fleet", __doc__)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--arrivals", type=int, default=200_000)
    options = parser.parse_args()
    result = frame("fleet", [0])
    result["hardware"] = "Linux x86_64, one thread, wall time"
    result["queues"] = [queue(load, options.arrivals) for load in LOADS]
    result["orders"] = orders()
    result["machine"] = list(machine(options.steps))
    write(result, options.output)
    for name in ("queues", "orders", "machine"):
        print(name, *result[name], sep="\n  ")


def queue(load: float, num_arrivals: int) -> dict[str, float]:
    """Return the mean time in a queue, simulated and calculated."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        simulated = runner.run(_mean_time(load, num_arrivals))
    return {"load": load, "calculated": 1 / (1 - load), "simulated": round(simulated, 4)}


async def _mean_time(load: float, num_arrivals: int) -> float:
    """Return the mean time of jobs that take 1 s alone on average and share a server."""
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


def orders() -> list[dict[str, Any]]:
    """Return what the spread of lengths and waiting for each other cost, on data-sheet engines."""
    recipes = ("paper", "tasks/plan_path", "models/qwen3_8b", "training/lora")
    names = [f"recipe:paper/{name}" for name in recipes]
    waiting = load_config(names, ["--engine.kind=transformers"])
    environment = make_environments(waiting)[0]
    engine = engine_of(_shape(waiting), GPUS["h100"], 1, USUAL)
    found: list[dict[str, Any]] = []
    for spread in (0.3, 0.8, 1.2):
        loads = [_workload(spread, random.Random(seed)) for seed in range(NUM_DRAWS)]
        played = {
            name: [
                rollouts_on(config, environment, load, Fleet((4,), (4,)), {"tool": engine})
                for load in loads
            ]
            for name, config in (("waiting", waiting), ("continuous", load_config(names)))
        }
        found.append(
            {
                "spread": spread,
                **{name: round(fmean(r.seconds for r in runs), 1) for name, runs in played.items()},
                "tail": round(fmean(r.tail for r in played["continuous"]), 3),
            }
        )
    return found


def _shape(config: Config) -> Any:
    from pettingllms_trainers.backends.hf.shapes import shape_of

    return shape_of("tool", config.models["tool"])


def _workload(spread: float, rng: random.Random) -> Workload:
    """Return levels of four turns whose answers are lognormal around 400 tokens."""
    agents = ("tool_0", "planner_0")
    steps = tuple(
        Step(
            agent,
            turn,
            500,
            tuple(max(1, round(400 * math.exp(rng.gauss(0, spread)))) for _ in range(64)),
        )
        for turn in range(4)
        for agent in agents
    )
    used = dict.fromkeys(agents, 1.0)
    return Workload((steps,), tuple((agent,) for agent in agents), 0.0, used, "lognormal")


def machine(num_steps: int) -> list[dict[str, Any]]:
    """Return the train steps of all settings, predicted from the first and measured."""
    with tempfile.TemporaryDirectory() as folder:
        warm = load_config(RECIPE, [*QUIET, "--output-dir", f"{folder}/warm"])
        commands.warm_start(warm)
        models = [
            f"--policies.{name}.model={Path(folder, 'warm', 'policies', name)}"
            for name in warm.models
        ]
        configs = {
            name: load_config(RECIPE, [*BASE, *models, *flags]) for name, flags in SETTINGS.items()
        }
        environments = make_environments(configs[FITTED])
        fitted = measured_here(configs[FITTED], environments, num_steps=num_steps)
        rows: list[dict[str, Any]] = []
        for name, config in configs.items():
            measured = measured_here(config, environments, num_steps=num_steps)
            rows.append({"setting": name, **_compared(config, fitted, measured, environments)})
            print(rows[-1], flush=True)
        return rows


def _compared(
    config: Config, fitted: Here, measured: Here, environments: Sequence[Any]
) -> dict[str, float]:
    engines = fitted.speeds.engines
    rollouts = rollouts_on(config, environments[0], fitted.workload, HERE, engines)
    predicted, real = step_on(config, rollouts, HERE, fitted.speeds).step_s, median(measured.step_s)
    return {
        "predicted_s": round(predicted, 4),
        "measured_s": round(real, 4),
        "least_s": round(min(measured.step_s), 4),
        "most_s": round(max(measured.step_s), 4),
        "ratio": round(predicted / real, 4),
    }


if __name__ == "__main__":
    main()
