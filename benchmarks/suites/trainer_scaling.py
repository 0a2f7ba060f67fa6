"""How the time of a train step grows with levels, candidates, roles, policies and agents.

    python benchmarks/suites/trainer_scaling.py

Every point is a run of the real `Trainer`, variations of the embedded default (`recipe:plan_path`):
teams are warmed up once, until they write actions that can be read, and then trained with a
learning rate near zero, so that every step of a point does the same kind of work. Points of a sweep
alternate with one another, seed by seed; a seed chooses levels and draws. Times are CPU seconds of
one thread, by phase. The clock costs about a microsecond per call of the environment.

`growth_exponent` is the slope of log step time over log sampled tokens: 1 is linear, below 1 what
a step costs in any case is shared by more tokens. `slope_s_per_unit` is the least-squares slope of
step time over the value that is swept. Both are formed for every seed; written is the median with
the minimum and maximum value.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Any, NamedTuple

import measuring
import torch
from trainer_phases import PHASES, Step, run
from transformers.utils import logging as transformers_logging

from pettingllms_trainers import commands
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.merge import read_layer

COUNTS = ("num_decisions", "num_prompt_tokens", "num_sampled_tokens", "num_trained_tokens")
LEARNING_RATE = 1e-9
"""Of the timed steps: they leave the policies as they are."""


class Point(NamedTuple):
    """One value of a sweep."""

    value: int | str
    recipe: str
    changes: Mapping[str, Any]
    """What differs from the recipe: dotted key to value."""


SWEEPS: dict[str, list[Point]] = {
    "levels": [
        Point(value, "two_policies", {"rollout.num_levels": value})
        for value in (8, 16, 32, 64, 128)
    ],
    "candidates": [
        Point(value, "two_policies", {"algorithm.num_candidates": value}) for value in (2, 4, 8, 16)
    ],
    "team": [Point(name, name, {}) for name in ("single", "one_policy", "two_policies")],
    "agents": [
        Point(value + 1, "ensemble", {"env.kwargs.reasoners": value}) for value in (1, 2, 4, 8)
    ],
    "game": [Point(name, name, {}) for name in ("plan_path", "sokoban", "sudoku")],
}


def changed(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of nested tables with some values replaced, given by dotted keys."""
    copy = json.loads(json.dumps(table))
    for key, value in changes.items():
        *sections, name = key.split(".")
        target = copy
        for section in sections:
            target = target.setdefault(section, {})
        target[name] = value
    return copy


def recipes() -> dict[str, dict[str, Any]]:
    """Return the run files that sweeps begin with, by name."""
    default = read_layer("recipe:plan_path").table
    shared = read_layer("recipe:plan_path_shared").table
    planner = "{board_flat}{goal_row}{goal_col}"
    single = {
        "env.kwargs.team": "single",
        "env.kwargs.prompts": {"planner": {"system": "", "user": planner}},
        "policies": {"planner": default["policies"]["planner"]},
        "roles": {"planner": "planner"},
        "warm_start.demonstrators": {"planner": {"random": 0.8, "oracle": 0.2}},
    }
    ensemble = {
        "env": {
            "id": "math_ensemble_v0",
            "kwargs": {
                "tools": 0,
                "prompts": {
                    "reasoner": {"system": "", "user": "{question}"},
                    "judge": {"system": "", "user": "{candidates}"},
                },
            },
        },
        "policies": {"team": {"model": "tiny", "init_std": 0.08}},
        "roles": {"reasoner": "team", "judge": "team"},
        "warm_start.demonstrators": {"reasoner": {"oracle": 1.0}, "judge": {"oracle": 1.0}},
        "rollout.num_levels": 16,
        "rollout.max_completion_tokens": 24,
    }
    return {
        "two_policies": default,
        "one_policy": shared,
        "single": changed(default, single),
        "ensemble": changed(default, ensemble),
        "plan_path": _game(default, "plan_path_v0", "{board}{goal_row}{goal_col}"),
        "sokoban": _game(default, "sokoban_v0", "{board}"),
        "sudoku": _game(default, "sudoku_v0", "{grid}"),
    }


def _game(default: Mapping[str, Any], env_id: str, prompt: str) -> dict[str, Any]:
    """Return a run on default levels, with the model and the sizes of the comparison with TRL."""
    return changed(
        default,
        {
            "env": {
                "id": env_id,
                "kwargs": {
                    "team": "single",
                    "prompts": {"planner": {"system": "", "user": prompt}},
                },
            },
            "policies": {
                "planner": {
                    "model": "tiny",
                    "hidden_size": 128,
                    "num_layers": 2,
                    "init_std": 0.08,
                }
            },
            "roles": {"planner": "planner"},
            "warm_start.demonstrators": {"planner": {"random": 0.8, "oracle": 0.2}},
            "rollout.num_levels": 16,
            "rollout.max_completion_tokens": 64,
        },
    )


def warmed_up(recipe: Mapping[str, Any], num_steps: int, folder: Path) -> dict[str, Any]:
    """Return a recipe whose policies are its own after the warm start."""
    config = changed(
        recipe,
        {
            "warm_start.num_steps": num_steps,
            "output_dir": str(folder),
            "evaluation.scripted": [],
            "logging": {"progress": "off", "tensorboard": False},
        },
    )
    with redirect_stdout(sys.stderr):
        commands.warm_start(Config.model_validate(config))
    policies = {name: {"model": str(folder / "policies" / name)} for name in recipe["policies"]}
    return changed(config, {"policies": policies, "warm_start.num_steps": 0})


def steps(recipe: Mapping[str, Any], changes: Mapping[str, Any], num_steps: int) -> list[Step]:
    """Return some measured steps of a run."""
    timed = {"num_steps": num_steps + 1, "optimizer.learning_rate": LEARNING_RATE}
    with tempfile.TemporaryDirectory() as folder:
        table = changed(recipe, {"output_dir": folder, **timed, **changes})
        return run(Config.model_validate(table), num_steps)


def measure(names: Sequence[str], seeds: Sequence[int], num_steps: int, num_warm: int) -> Any:
    """Run all points of some sweeps with all seeds."""
    tables = recipes()
    wanted = {point.recipe for name in names for point in SWEEPS[name]}
    found: dict[tuple[str, int | str], list[list[Step]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        warm: dict[str, Any] = {}
        for recipe in sorted(wanted):
            warm[recipe] = warmed_up(tables[recipe], num_warm, Path(folder) / recipe)
        for seed in seeds:
            for name in names:
                for point in SWEEPS[name]:
                    taken = steps(warm[point.recipe], {**point.changes, "seed": seed}, num_steps)
                    found.setdefault((name, point.value), []).append(taken)
                    print(seed, name, point.value, mean_seconds(taken), file=sys.stderr)
    return {
        name: summary([(point, found[name, point.value]) for point in SWEEPS[name]])
        for name in names
    }


def mean_seconds(taken: Sequence[Step]) -> float:
    """Return the mean time of some steps."""
    return fmean(sum(step.seconds.values()) for step in taken)


def summary(points: Sequence[tuple[Point, Sequence[Sequence[Step]]]]) -> dict[str, Any]:
    """Return the figures of a sweep: its points, and how its time grows."""
    result: dict[str, Any] = {"points": [described(*point) for point in points]}
    values = [point.value for point, _ in points]
    if all(isinstance(value, int) for value in values):
        seeds = list(zip(*(runs for _, runs in points), strict=True))
        result["growth_exponent"] = measuring.spread([growth(runs) for runs in seeds])
        result["slope_s_per_unit"] = {
            phase: measuring.spread([slope(values, runs, phase) for runs in seeds])
            for phase in PHASES
        } | {"step": measuring.spread([slope(values, runs) for runs in seeds])}
    return result


def growth(runs: Sequence[Sequence[Step]]) -> float:
    """Return the exponent with which step time grows with the number of sampled tokens."""
    tokens = [fmean(step.num_sampled_tokens for step in taken) for taken in runs]
    times = [mean_seconds(taken) for taken in runs]
    return linear_regression([*map(math.log, tokens)], [*map(math.log, times)]).slope


def slope(values: Sequence[Any], runs: Sequence[Sequence[Step]], phase: str | None = None) -> float:
    """Return the seconds that a step, or a phase of it, takes for one unit more."""
    times = [
        fmean(sum(step.seconds.values()) if phase is None else step.seconds[phase] for step in run)
        for run in runs
    ]
    return linear_regression(values, times).slope


def described(point: Point, runs: Sequence[Sequence[Step]]) -> dict[str, Any]:
    """Return the figures of a point, over all steps of all seeds."""
    every = [step for taken in runs for step in taken]
    totals = [sum(step.seconds.values()) for step in every]
    return {
        "value": point.value,
        "step_s": measuring.spread(totals),
        "seconds": {
            phase: measuring.spread([step.seconds[phase] for step in every]) for phase in PHASES
        },
        "shares": {
            phase: measuring.spread(
                [step.seconds[phase] / total for step, total in zip(every, totals, strict=True)]
            )
            for phase in PHASES
        },
        "us_per_sampled_token": measuring.spread(
            [
                1e6 * total / step.num_sampled_tokens
                for step, total in zip(every, totals, strict=True)
            ]
        ),
    } | {name: measuring.spread([getattr(step, name) for step in every]) for name in COUNTS}


def main() -> None:
    """Measure all sweeps and write the result."""
    parser = measuring.parser_of("trainer_scaling", __doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=2, help="measured steps of a run")
    parser.add_argument("--warm-steps", type=int, default=80, help="supervised steps before")
    parser.add_argument("--sweeps", nargs="+", choices=SWEEPS, default=list(SWEEPS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    result = measuring.frame("trainer_scaling", options.seeds)
    result["sweeps"] = measure(options.sweeps, options.seeds, options.steps, options.warm_steps)
    measuring.write(result, options.output)


if __name__ == "__main__":
    main()
