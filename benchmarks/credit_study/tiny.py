"""Trials of the tiny and the GPU layer: the trainer itself, at equal sampled tokens."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

__all__ = ["ENVIRONMENT", "ROOT", "command_of", "flags_of", "played", "train", "training_cell"]

ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.5
_PATIENCE_S = 120
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
"""Cells run beside each other, one thread each."""
_MANY_STEPS = 100_000


def training_cell(
    layer: Mapping[str, Any],
    task: Mapping[str, Any],
    keys: Mapping[str, Any],
    reward: str,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """Train until the task's sampled tokens are used up; return held-out success along the way.

    Args:
        layer: Section of the study's table.
        task: Run file, tokens, further keys.
        keys: The variant: sections of a run file.
        reward: Argument of the environment.
        rate: Learning rate.
        seed: Of the run; the held-out levels are always the same.

    Returns:
        `curve`: (sampled tokens, share of held-out levels solved by sampling, levels); `scripted`:
        shares of the scripted rules; `untaught`: the share solved when one role alone is played by
        its policy from before training, by role, on the same levels; `seconds`; `tokens`;
        `r2`: that of V, mean over policies and the second half of the train steps; `complete`:
        whether the tokens were used up within the limit of processor time; `error`: the last line
        of the log, if the run failed.
    """
    with tempfile.TemporaryDirectory(prefix="credit-study-") as folder:
        directory = Path(folder) / "run"
        started = time.monotonic()
        files = [ROOT / name for name in (task["config"], *task.get("more", ()))]
        flags = flags_of(task, keys, reward, rate, seed)
        found = train(files, flags, directory, task["tokens"], layer["limit_s"])
        if found["complete"] and layer.get("plays_untaught"):
            found["untaught"] = _play_untaught(directory)
        return {**found, "seconds": round(time.monotonic() - started, 1)}


def flags_of(
    task: Mapping[str, Any], keys: Mapping[str, Any], reward: str, rate: float, seed: int
) -> dict[str, Any]:
    """Return the keys of a run file that make it a run of the study; see `training_cell`."""
    return {
        **task.get("keys", {}),
        **{f"{name}.{key}": value for name, part in keys.items() for key, value in part.items()},
        "env.kwargs.reward": reward,
        "optimizer.learning_rate": rate,
        "optimizer.final_fraction": 1.0,  # nobody knows beforehand how many steps there are
        "seed": seed,
        "num_steps": _MANY_STEPS,
        "evaluation.every": task.get("every", 3),
        "evaluation.swap_roles": False,
        "checkpoint.every": _MANY_STEPS,
        "logging.progress": "off",
        "logging.tensorboard": False,
        "logging.rollouts_every": 0,
    }


def train(
    files: Sequence[Path], flags: Mapping[str, Any], directory: Path, tokens: int, limit_s: float
) -> dict[str, Any]:
    """Train until the tokens are used up; return what `training_cell` returns of the run itself.

    Args:
        files: Run files.
        flags: Keys that override theirs.
        directory: Output directory, new; its last checkpoint is of the last train step.
        tokens: Sampled tokens.
        limit_s: Limit of processor time; what else the machine does is no matter.
    """
    command = command_of(files, {**flags, "output_dir": directory})
    log = directory.with_name(f"{directory.name}.log")
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env=ENVIRONMENT,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
        )
        try:
            _wait(process, directory, tokens)
            process.terminate()  # saves a checkpoint after the running train step
            process.wait(_PATIENCE_S)
        finally:
            process.kill()
            process.wait()
    found = _read(directory, tokens)
    if not found["curve"]:
        found["error"] = (log.read_text().strip().splitlines() or ["no output"])[-1]
    return found


def command_of(files: Sequence[Path], flags: Mapping[str, Any], *kind: str) -> list[str]:
    """Return the command line of a run of the trainer."""
    command = [sys.executable, "-m", "pettingllms_trainers.cli", *kind, *map(str, files)]
    return command + [f"--{key}={_text(value)}" for key, value in flags.items()]


def _wait(process: subprocess.Popen[bytes], directory: Path, tokens: int) -> None:
    """Wait until a run has ended, by itself or by its limit, or used up its tokens."""
    while process.poll() is None and not _read(directory, tokens)["complete"]:
        time.sleep(_POLL_S)


def _play_untaught(directory: Path) -> dict[str, float]:
    """Return the success of the trained team with one role untaught, by role.

    A role that has learnt nothing of use is as good untaught.
    """
    config = tomllib.loads((directory / "config.toml").read_text(encoding="utf-8"))
    found: dict[str, float] = {}
    for role, policy in config["roles"].items():
        untaught = {role: f"run:{directory}?policy={policy}&step=0"}
        found[role] = played(directory, f"untaught-{role}", untaught)["main"]
    return found


def played(
    directory: Path, name: str, policies: Mapping[str, str], *options: str
) -> dict[str, float]:
    """Return the success on the held-out levels of a run, by variant of the evaluation.

    Args:
        directory: Output directory of the run.
        name: Of the folder in it that the evaluation is kept in.
        policies: Role -> policy; the other roles are played by the run's newest checkpoint.
        *options: Further ones of `pettingllms eval`.
    """
    config = tomllib.loads((directory / "config.toml").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "pettingllms.cli", "eval", "--run", str(directory), *options]
    for role, policy in policies.items():
        command += ["--policy", f"{role}={policy}"]
    command += ["--sampling", "temperature=1", "--format", "json"]
    command += ["--episodes", str(config["evaluation"]["num_episodes"])]
    command += ["--out", str(directory / name)]
    ran = subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT)
    variants = json.loads(ran.stdout)["variants"]
    return {variant: found["success"]["value"] for variant, found in variants.items()}


def _read(directory: Path, tokens: int) -> dict[str, Any]:
    """Return what a run has written so far."""
    metrics = {line["step"]: line for line in _lines(directory / "metrics.jsonl")}
    used, at_step = 0.0, {0: 0.0}
    for step in sorted(metrics):
        used += metrics[step].get("rollout/num_completion_tokens", 0)
        at_step[step] = used
    evaluations = [e for e in _lines(directory / "evaluations.jsonl") if e["step"] in at_step]
    curve = [
        [at_step[e["step"]], e["variants"]["sampled"]["success"], e["num_episodes"]]
        for e in evaluations
    ]
    first = evaluations[0]["variants"] if evaluations else {}
    steps = [line for step, line in metrics.items() if step]
    total = sum(line["time/step_s"] for line in steps)
    of_v = sum(line.get("time/value_s", 0) + line.get("time/fit_value_s", 0) for line in steps)
    last = metrics[max(metrics)] if metrics else {}
    late = steps[len(steps) // 2 :]  # V is 0 everywhere at first
    explained = [v for line in late for k, v in line.items() if k.endswith("/r2")]
    return {
        "curve": curve,
        "tokens": used,
        "complete": bool(curve) and curve[-1][0] >= tokens,
        "scripted": {
            name.partition(":")[2]: arm["success"]
            for name, arm in first.items()
            if name.startswith("scripted:")
        },
        "value_share": of_v / total if total else 0.0,
        "r2": fmean(explained) if explained else None,
        "used": {k: v for k, v in last.items() if k.endswith("/decisions_used")},
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file that is being written."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
