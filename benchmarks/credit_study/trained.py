"""Cells of the tiny layer: the trainer itself, at equal sampled tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from credit_study import distractors
from credit_study.runs import train
from credit_study.warm_start import begin_with
from pettingllms.state import flat_table

ROOT = Path(__file__).resolve().parents[2]
_MANY_STEPS = 100_000
_RATE = 1e-3


def training_cell(
    task: Mapping[str, Any],
    algorithm: Mapping[str, Any],
    num_levels: int,
    reward: str,
    bonus: str,
    seed: int,
    limit_s: int,
    shared: Path,
) -> dict[str, Any]:
    """Train until the task's sampled tokens are used up; return held-out success along the way.

    Args:
        task: Run file, tokens, rate, further keys; `every`: train steps between evaluations.
        algorithm: The way: section of a run file.
        num_levels: Levels of a train step.
        reward: Argument of the environment.
        bonus: A function of `distractors` that is paid beside it; "": none.
        seed: Of the run; the held-out levels are always the same.
        limit_s: Limit of processor time, seconds.
        shared: Folder of the study's warm starts.

    Returns:
        `curve`: (sampled tokens, share of held-out levels solved by sampling, levels), the last one
        after the task's tokens; `scripted`: shares of the scripted rules; `tokens`: all that were
        sampled.

    Raises:
        RuntimeError: The run failed, or did not use up its tokens within the limit.
    """
    with tempfile.TemporaryDirectory(prefix="credit-study-") as folder:
        flags = flags_of(task, algorithm, num_levels, reward, bonus, seed)
        path = ROOT / task["config"]
        begun = begin_with(shared, [path], flags)
        return trained(path, begun, Path(folder) / "run", task["tokens"], limit_s)


def trained(
    file: Path, flags: Mapping[str, Any], directory: Path, tokens: int, limit_s: int
) -> dict[str, Any]:
    """Train until the tokens are used up; return what `training_cell` returns.

    Args:
        file: Run file.
        flags: Keys that override its own.
        directory: Of the run, new.
        tokens: Sampled tokens.
        limit_s: Limit of processor time, seconds.

    Raises:
        RuntimeError: See `training_cell`.
    """
    found = train([file], flags, directory, tokens, limit_s)
    if not found["complete"]:
        raise RuntimeError(found.get("error", f"not at its tokens within {limit_s} s"))
    return {name: found[name] for name in ("curve", "scripted", "tokens")}


def flags_of(
    task: Mapping[str, Any],
    algorithm: Mapping[str, Any],
    num_levels: int,
    reward: str,
    bonus: str,
    seed: int,
) -> dict[str, Any]:
    """The keys of a run file that make it a run of the study; see `training_cell`."""
    paid = {f"rewards.{bonus}.function": f"{distractors.__file__}:{bonus}"} if bonus else {}
    return {
        **task["keys"],
        **flat_table({"algorithm": algorithm}),
        **paid,
        "env.kwargs.reward": reward,
        "rollout.num_levels": num_levels,
        "optimizer.learning_rate": task.get("rate", _RATE),
        "optimizer.final_fraction": 1.0,  # nobody knows beforehand how many steps there are
        "seed": seed,
        "num_steps": _MANY_STEPS,
        "evaluation.every": task["every"],
        "evaluation.decoding": "sampled",
        "evaluation.swap_roles": False,
        "checkpoint.every": _MANY_STEPS,
        "logging.progress": "off",
        "logging.tensorboard": False,
        "logging.rollouts_every": 0,
    }
