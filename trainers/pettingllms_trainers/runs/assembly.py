"""From a configuration, environments and policies to a run."""

from __future__ import annotations

import asyncio

from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.ahead import TrainingRollouts
from pettingllms_trainers.rollout.demonstrations import WarmStart
from pettingllms_trainers.rollout.environments import Environments
from pettingllms_trainers.rollout.episode import EpisodesOfRun
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.sampler import Sampler
from pettingllms_trainers.runs.evaluate import HeldOutSet
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.recorder import Recorder
from pettingllms_trainers.runs.train import Trainer
from pettingllms_trainers.stopping import StopRequest

__all__ = ["build_trainer"]


def build_trainer(
    config: Config,
    environments: Environments,
    pool: PolicyPool,
    recorder: Recorder,
    files: RunDirectory,
    *,
    episodes: EpisodesOfRun,
    stop: StopRequest,
    runner: asyncio.Runner,
) -> Trainer:
    """Put the parts of a run together.

    Args:
        config: The run's configuration.
        environments: See `make_environments`.
        pool: See `build_pool`.
        recorder: Writes what happens.
        files: An opened run directory.
        episodes: Where these environments are played.
        stop: Tells when to stop early.
        runner: Runs rollouts; one event loop for the whole run.
    """
    failures = FailureLog(config.rollout.max_failed_fraction)
    sampler = Sampler(episodes.training, pool, config, failures, runner, stop)
    return Trainer(
        config=config,
        pool=pool,
        warm_start=WarmStart(config, environments.training[0], pool, stop),
        rollouts=TrainingRollouts(sampler, config, stop, pool.ranks),
        held_out=HeldOutSet(environments.held_out, episodes.held_out, config, failures, runner),
        recorder=recorder,
        checkpoints=files.checkpoints,
        stop=stop,
    )
