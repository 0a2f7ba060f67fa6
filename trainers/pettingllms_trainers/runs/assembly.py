"""From a configuration, environments and policies to a run."""

from __future__ import annotations

import asyncio
from typing import Any

from pettingllms import TextEnv
from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.demonstrations import WarmStart
from pettingllms_trainers.rollout.episode import Episodes
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
    environments: tuple[TextEnv[Any], TextEnv[Any]],
    pool: PolicyPool,
    recorder: Recorder,
    files: RunDirectory,
    *,
    episodes: tuple[Episodes, Episodes],
    stop: StopRequest,
    runner: asyncio.Runner,
) -> Trainer:
    """Put the parts of a run together.

    Args:
        config: The run's configuration.
        environments: For training, and of the held-out split; see `environments.make_environments`.
        pool: See `build_pool`.
        recorder: Writes what happens.
        files: An opened run directory.
        episodes: Where these environments are played.
        stop: Tells when to stop early.
        runner: Runs rollouts; one event loop for the whole run.
    """
    env, held_out_env = environments
    training_episodes, held_out_episodes = episodes
    failures = FailureLog(config.rollout.max_failed_fraction)
    return Trainer(
        config=config,
        pool=pool,
        warm_start=WarmStart(config, env, pool, stop),
        sampler=Sampler(training_episodes, pool, config, failures, runner, stop),
        held_out=HeldOutSet(held_out_env, held_out_episodes, config, failures, runner),
        recorder=recorder,
        checkpoints=files.checkpoints,
        stop=stop,
    )
