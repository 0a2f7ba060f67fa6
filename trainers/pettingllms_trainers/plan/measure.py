"""`pettingllms-train --dry-run --measure`: how long a run takes, from one step that is taken."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from pettingllms_trainers.config import Config
from pettingllms_trainers.plan import Plan
from pettingllms_trainers.policies.fixed import open_fixed_policies
from pettingllms_trainers.ranks import joined_ranks
from pettingllms_trainers.rollout.environments import RunEnvironment, played_by
from pettingllms_trainers.runs.assembly import build_trainer
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.machines import open_machines
from pettingllms_trainers.runs.progress import ProgressView
from pettingllms_trainers.runs.recorder import SilentRecorder
from pettingllms_trainers.runs.trackers import Trackers
from pettingllms_trainers.stopping import StopRequest

__all__ = ["StepTimes", "measure", "time_text"]


class StepTimes(NamedTuple):
    """What was measured."""

    step_s: float
    """Wall time of a train step, in seconds."""
    evaluation_s: float
    """Wall time of a held-out evaluation, in seconds."""


def measure(config: Config, environments: Sequence[RunEnvironment]) -> StepTimes:
    """Take one train step and one evaluation with untrained policies; nothing is kept.

    Args:
        config: The run's configuration.
        environments: See `make_environments`.

    Raises:
        TrainerError: What a run would raise.
    """
    with (
        joined_ranks() as ranks,
        asyncio.Runner() as runner,
        open_fixed_policies(config, played_by(environments), runner) as fixed_policies,
        open_machines(config, ranks) as machines,
        tempfile.TemporaryDirectory() as directory,
        StopRequest(ranks) as stop,
    ):
        files = RunDirectory(Path(directory))
        trackers = Trackers(files.directory, config)  # not opened: it writes nothing
        trainer = build_trainer(
            config,
            environments,
            machines.build_pool(fixed_policies),
            SilentRecorder(files, config, ProgressView(), trackers),
            files,
            episodes=machines.build_episodes(environments),
            stop=stop,
            runner=runner,
        )
        return StepTimes(*trainer.measure())


def time_text(config: Config, plan: Plan, times: StepTimes) -> str:
    """Return the estimate as a sentence."""
    total = config.num_steps * times.step_s + plan.num_evaluations * times.evaluation_s
    return (
        f"Measured here, with untrained policies: a train step takes {times.step_s:.1f} s, an "
        f"evaluation {times.evaluation_s:.1f} s. {config.num_steps} train steps and "
        f"{plan.num_evaluations} evaluations take about {timedelta(seconds=round(total))}"
        + (", besides the warm start." if config.warm_start.num_steps else ".")
    )
