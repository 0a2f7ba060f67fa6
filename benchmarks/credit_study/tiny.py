"""Cells of the tiny and the GPU layer: the trainer itself, at equal sampled tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from credit_study.runs import played, train
from credit_study.warm_start import begin_with
from pettingllms.evaluation.training_run import TrainingRun
from pettingllms.state import flat_table

ROOT = Path(__file__).resolve().parents[2]
_MANY_STEPS = 100_000


def training_cell(
    layer: Mapping[str, Any],
    task: Mapping[str, Any],
    keys: Mapping[str, Any],
    reward: str,
    rate: float,
    seed: int,
    shared: Path,
) -> dict[str, Any]:
    """Train until the task's sampled tokens are used up; return held-out success along the way.

    Args:
        layer: Section of the study's table.
        task: Run file, tokens, further keys.
        keys: The variant: sections of a run file.
        reward: Argument of the environment.
        rate: Learning rate.
        seed: Of the run; the held-out levels are always the same.
        shared: Folder of the study's warm starts.

    Returns:
        `curve`: (sampled tokens, share of held-out levels solved by sampling, levels); `scripted`:
        shares of the scripted rules; `untaught`: the share solved when one role alone is played by
        its policy from before training, by role, on the same levels; `tokens`;
        `r2`: that of V, mean over policies and the second half of the train steps; `complete`:
        whether the tokens were used up within the limit of processor time; `error`: the last line
        of the log, if the run failed.
    """
    with tempfile.TemporaryDirectory(prefix="credit-study-") as folder:
        directory = Path(folder) / "run"
        files = [ROOT / name for name in (task["config"], *task.get("more", ()))]
        flags = begin_with(shared, files, flags_of(task, keys, reward, rate, seed))
        found = train(files, flags, directory, task["tokens"], layer["limit_s"])
        if found["complete"] and layer.get("plays_untaught"):
            found["untaught"] = _play_untaught(directory)
        return found


def flags_of(
    task: Mapping[str, Any], keys: Mapping[str, Any], reward: str, rate: float, seed: int
) -> dict[str, Any]:
    """Return the keys of a run file that make it a run of the study; see `training_cell`."""
    return {
        **task.get("keys", {}),
        **flat_table(keys),
        "env.kwargs.reward": reward,
        "optimizer.learning_rate": rate,
        "optimizer.final_fraction": 1.0,  # nobody knows beforehand how many steps there are
        "seed": seed,
        "num_steps": _MANY_STEPS,
        "evaluation.every": task.get("every", 3),
        "evaluation.decoding": "sampled",
        "evaluation.swap_roles": False,
        "checkpoint.every": _MANY_STEPS,
        "logging.progress": "off",
        "logging.tensorboard": False,
        "logging.rollouts_every": 0,
    }


def _play_untaught(directory: Path) -> dict[str, float]:
    """Return the success of the trained team with one role untaught, by role.

    A role that has learnt nothing of use is as good untaught.
    """
    roles = TrainingRun.open(directory).config["roles"]
    untaught = {
        role: {role: f"run:{directory}?policy={policy}&step=0"} for role, policy in roles.items()
    }
    return played(directory, directory / "untaught", untaught)
