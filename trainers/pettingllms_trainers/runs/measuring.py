"""How long a run takes here, found out by taking train steps with untrained policies."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pettingllms_trainers.config import Config
from pettingllms_trainers.learning.groups import ScoredDecisions
from pettingllms_trainers.policies.fixed import open_fixed_policies
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import Ranks, StopRequest
from pettingllms_trainers.rollout.environments import RunEnvironment, played_by
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.machines import open_machines
from pettingllms_trainers.runs.recorder import ProgressView, SilentRecorder
from pettingllms_trainers.runs.trackers import Trackers
from pettingllms_trainers.runs.train import build_trainer
from pettingllms_trainers.types import RolloutTree


class MeasuredRun(NamedTuple):
    """Train steps that were taken to be measured."""

    steps: list[dict[str, float]]
    """Metrics of each train step."""
    trees: list[list[RolloutTree]]
    """Rollouts of each train step."""
    evaluation_s: float
    """Wall time of one held-out evaluation."""


def measured(
    config: Config,
    environments: Sequence[RunEnvironment],
    ranks: Ranks,
    *,
    num_steps: int = 1,
    watch: Callable[[PolicyPool], PolicyPool] = lambda pool: pool,
) -> MeasuredRun:
    """Take train steps and an evaluation with untrained policies; nothing is kept.

    Args:
        ranks: The processes of the run, which measure together.
        num_steps: Train steps that count, at least 1.
        watch: Called with the policies before the first; those that it returns are trained.

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
        pool = watch(machines.build_pool(fixed_policies))
        recorder = _KeepingRecorder(files, config)
        trainer = build_trainer(
            config,
            environments,
            pool,
            recorder,
            files,
            episodes=machines.build_episodes(environments),
            stop=stop,
            runner=runner,
        )
        steps, evaluation_s = trainer.measure(num_steps)
        # With rollouts in flight earlier trees are of steps that do not count.
        return MeasuredRun(steps, recorder.trees[-num_steps:], evaluation_s)


class _KeepingRecorder(SilentRecorder):
    """Keeps rollouts of train steps in memory, and writes nothing."""

    def __init__(self, files: RunDirectory, config: Config) -> None:
        # Trackers that are not opened write nothing.
        super().__init__(files, config, ProgressView(), Trackers(files.directory, config))
        self.trees: list[list[RolloutTree]] = []

    def rollouts(
        self, step: int, trees: Sequence[RolloutTree], scored: ScoredDecisions, pool: PolicyPool
    ) -> None:
        self.trees.append(list(trees))
