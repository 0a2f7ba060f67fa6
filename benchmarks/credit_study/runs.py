"""Runs of the trainer in processes of their own, and what their files say."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.evaluation import EvaluationPlan, RunFolder, evaluate, summarise
from pettingllms.evaluation.training_run import TrainingRun

_POLL_S = 0.5
_PATIENCE_S = 120
_GRACE_S = 10


def train(
    files: Sequence[Path], flags: Mapping[str, Any], directory: Path, tokens: int, limit_s: int
) -> dict[str, Any]:
    """Train until the tokens are used up; return what `training_cell` returns of the run itself.

    Args:
        files: Run files.
        flags: Keys that override theirs.
        directory: Output directory, new; its last checkpoint is of the last train step.
        tokens: Sampled tokens.
        limit_s: Limit of processor time, whole seconds; other load on the machine does not count.
    """
    command = command_of(files, {**flags, "output_dir": directory})
    log = directory.with_name(f"{directory.name}.log")
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            # At the hard limit it would be killed, as by anybody else.
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_CPU, (limit_s, limit_s + _GRACE_S)
            ),
        )
        try:
            _wait(process, directory, tokens)
            process.terminate()  # saves a checkpoint after the running train step
            process.wait(_PATIENCE_S)
        finally:
            process.kill()
            process.wait()
    found = _read(directory, tokens)
    has_failed = process.returncode not in (0, -signal.SIGXCPU) and not found["complete"]
    if has_failed or not found["curve"]:
        found["error"] = (log.read_text().strip().splitlines() or ["no output"])[-1]
    return found


def command_of(files: Sequence[Path], flags: Mapping[str, Any], *kind: str) -> list[str]:
    """The command line of a run of the trainer."""
    command = [sys.executable, "-m", "pettingllms_trainers.cli", *kind, *map(str, files)]
    return command + flag_lines(flags)


def flag_lines(flags: Mapping[str, Any]) -> list[str]:
    """Keys of a run file as flags of the command line."""
    return [f"--{key}={_text(value)}" for key, value in flags.items()]


def _wait(process: subprocess.Popen[bytes], directory: Path, tokens: int) -> None:
    """Wait until a run has ended, by itself or by its limit, or used up its tokens."""
    while process.poll() is None and not _read(directory, tokens)["complete"]:
        time.sleep(_POLL_S)


def played(
    directory: Path, folder: Path, policies: Mapping[str, Mapping[str, str]]
) -> dict[str, float]:
    """The success on the held-out levels of a run by variant; see `evaluated`."""
    plan, kept = evaluated(directory, folder, policies)
    found = summarise(plan, kept.results()).variants
    return {name: found[name].success.value for name in policies}


def evaluated(
    directory: Path, folder: Path, policies: Mapping[str, Mapping[str, str]]
) -> tuple[EvaluationPlan, RunFolder]:
    """Play the held-out levels of a run; return how, and what came out.

    Args:
        directory: Output directory of the run.
        folder: In which the evaluation is kept, new.
        policies: Variant -> role -> policy; the other roles are played by what the run trained.
    """
    run = TrainingRun.open(directory)
    line_up = run.line_up()
    numbers = run.levels()
    plan = EvaluationPlan(
        env_id=run.env_id,
        variants={name: {**line_up, **others} for name, others in policies.items()},
        env_kwargs=run.held_out_kwargs(),
        sampling=run.sampling(line_up),
        seed=numbers["seed"],
        num_levels=numbers["episodes"],
    )
    plan = plan.with_distinct_levels(plan.make_env())
    kept = RunFolder.create(folder, plan)
    with contextlib.redirect_stderr(io.StringIO()):  # how the models sample is no news
        evaluate(kept, max_concurrency=plan.num_levels)
    return plan, kept


def _read(directory: Path, tokens: int) -> dict[str, Any]:
    """What a run has written so far."""
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
    return {
        "curve": curve,
        "tokens": used,
        "complete": bool(curve) and curve[-1][0] >= tokens,
        "scripted": {
            name.partition(":")[2]: arm["success"]
            for name, arm in first.items()
            if name.startswith("scripted:")
        },
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that is being written."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
