"""From a configuration, environments and policies to a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.candidates import FailureLog
from pettingllms_trainers.rollout.demonstrations import WarmStart
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.episode import EpisodesOfEnv
from pettingllms_trainers.rollout.in_flight import TrainingRollouts
from pettingllms_trainers.rollout.judging import Rewards
from pettingllms_trainers.rollout.sampler import Sampler, TrainingEnvironment
from pettingllms_trainers.runs.evaluate import HeldOut
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.held_out import HeldOutSet
from pettingllms_trainers.runs.recorder import Recorder
from pettingllms_trainers.runs.train import Trainer
from pettingllms_trainers.stopping import StopRequest


def build_trainer(
    config: Config,
    environments: Sequence[RunEnvironment],
    pool: PolicyPool,
    recorder: Recorder,
    files: RunDirectory,
    *,
    episodes: Sequence[EpisodesOfEnv],
    stop: StopRequest,
    runner: asyncio.Runner,
    rewards: Rewards | None = None,
) -> Trainer:
    """Put the parts of a run together.

    Args:
        config: The run's configuration.
        environments: See `make_environments`.
        pool: See `build_pool`.
        recorder: Writes what happens.
        files: An opened run directory.
        episodes: Where each of these environments is played.
        stop: Tells when to stop early.
        runner: Runs rollouts; one event loop for the whole run.
        rewards: What answers earn in training beside the environments' rewards; None: nothing.
    """
    rewards = rewards or Rewards()
    failures = FailureLog(config.rollout.max_failed_fraction)
    training = [
        TrainingEnvironment(
            name=env.name,
            config=env.config,
            roles=env.roles,
            episodes=own.training,
            rewards=rewards,
        )
        for env, own in zip(environments, episodes, strict=True)
    ]
    held_out: list[HeldOutSet] = []
    for env, own in zip(environments, episodes, strict=True):
        first = sum(len(one.specs) for one in held_out)
        held_out.append(HeldOutSet(env, own.held_out, config, failures, runner, first))
    # Beside an update ranks exchange rollouts and gradients at the same time.
    ranks = pool.ranks.apart() if config.plays_beside_updates else pool.ranks
    sampler = Sampler(training, replace(pool, ranks=ranks), config, failures, stop)
    return Trainer(
        config=config,
        pool=pool,
        warm_start=WarmStart(config, environments, pool, stop),
        rollouts=TrainingRollouts(sampler, config, stop, runner, pool.ranks),
        held_out=HeldOut(held_out, config),
        recorder=recorder,
        checkpoints=files.checkpoints,
        rewards=rewards,
        stop=stop,
    )
