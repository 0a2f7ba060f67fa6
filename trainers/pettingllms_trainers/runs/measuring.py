"""How long a run takes here, found out by taking a train step with untrained policies."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.fixed import open_fixed_policies
from pettingllms_trainers.ranks import Ranks, StopRequest
from pettingllms_trainers.rollout.environments import RunEnvironment, played_by
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.machines import open_machines
from pettingllms_trainers.runs.recorder import ProgressView, SilentRecorder
from pettingllms_trainers.runs.trackers import Trackers
from pettingllms_trainers.runs.train import build_trainer


def measured(
    config: Config, environments: Sequence[RunEnvironment], ranks: Ranks
) -> tuple[float, float]:
    """Take a train step and a held-out evaluation with untrained policies; nothing is kept.

    Args:
        ranks: The processes of the run, which measure together.

    Returns:
        The seconds of both, wall time.

    Raises:
        PettingLLMsError: The run failed.
    """
    with (
        open_fixed_policies(config, played_by(environments)) as (runner, fixed_policies),
        open_machines(config, ranks) as machines,
        tempfile.TemporaryDirectory() as directory,
        StopRequest(ranks) as stop,
    ):
        files = RunDirectory(Path(directory))
        # Trackers that are not opened write nothing.
        trackers = Trackers(files.directory, config)
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
