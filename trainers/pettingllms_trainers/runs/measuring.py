"""How long a run takes here, found out by taking its first train step with untrained policies."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.fixed import open_fixed_policies
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.environments import RunEnvironment, played_by
from pettingllms_trainers.runs.assembly import build_trainer
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.machines import open_machines
from pettingllms_trainers.runs.progress import ProgressView
from pettingllms_trainers.runs.recorder import SilentRecorder
from pettingllms_trainers.runs.trackers import Trackers
from pettingllms_trainers.stopping import StopRequest

__all__ = ["measured_times"]


def measured_times(
    config: Config, environments: Sequence[RunEnvironment], ranks: Ranks
) -> tuple[float, float]:
    """Take a train step and an evaluation with untrained policies; return the seconds of each.

    Args:
        config: The run's configuration.
        environments: What the run plays.
        ranks: The processes of the run, which measure together.

    Raises:
        PettingLLMsError: The run failed.
    """
    with (
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
        return trainer.measure()
