"""From a configuration to the models and the other parts of a run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pettingllms import TextEnv
from pettingllms.seeding import derive_seed
from pettingllms_trainers.backends.transformers import TransformersPolicy
from pettingllms_trainers.backends.updating import TrainingSettings
from pettingllms_trainers.config import Config, PolicyConfig
from pettingllms_trainers.demonstrations import WarmStart
from pettingllms_trainers.engines import build_engine
from pettingllms_trainers.environments import make_episodes
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.failures import FailureLog
from pettingllms_trainers.held_out import HeldOutSet
from pettingllms_trainers.models import CHARACTERS, build_tiny
from pettingllms_trainers.policy import Batcher, Policy, PolicyPool
from pettingllms_trainers.recorder import Recorder
from pettingllms_trainers.run_files import RunFiles
from pettingllms_trainers.sampler import Sampler, sampling_of
from pettingllms_trainers.stopping import StopRequest
from pettingllms_trainers.train import Trainer

__all__ = ["build_policies", "build_pool", "build_trainer"]

TINY = "tiny"
"""The model name that asks for a small model of random weights."""


def build_policies(config: Config) -> dict[str, TransformersPolicy]:
    """Load or build the model of every policy.

    Raises:
        ConfigError: A model cannot be loaded, or there is no such device.
        InvalidArgument: The sizes of a tiny model do not go together.
    """
    device = _device(config.device)
    return {
        name: _build_policy(
            config,
            name,
            policy,
            torch.device("cpu") if _only_gives_weights(config, policy) else device,
        )
        for name, policy in config.policies.items()
    }


def _only_gives_weights(config: Config, policy: PolicyConfig) -> bool:
    """Return whether a model neither generates nor learns: an engine has a copy of it."""
    return policy.frozen and config.engine.kind != "transformers"


def _build_policy(
    config: Config, name: str, policy: PolicyConfig, device: torch.device
) -> TransformersPolicy:
    training = TrainingSettings(
        loss=config.resolved_loss,
        optimizer=config.optimizer,
        num_steps=config.num_steps,
        max_completion_tokens=max(
            sampling_of(config.rollout, role).max_completion_tokens
            for role, player in config.roles.items()
            if player == name
        ),
        seed=derive_seed(config.seed, "update", name),
        max_logprob_gap=config.engine.max_logprob_gap,
    )
    with tempfile.TemporaryDirectory(prefix="pettingllms-") as folder:
        source = policy.model
        if source == TINY:
            source = str(_build_tiny(Path(folder), policy, derive_seed(config.seed, "model", name)))
        try:
            return TransformersPolicy.from_pretrained(
                source,
                engine=config.engine,
                training=None if policy.frozen else training,
                device=device,
                chat_template_kwargs=policy.chat_template_kwargs,
            )
        except OSError as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"[policies.{name}] model = {policy.model!r} cannot be loaded: {reason}"
            ) from error


def _build_tiny(folder: Path, policy: PolicyConfig, seed: int) -> Path:
    return build_tiny(
        folder,
        vocabulary=tuple(dict.fromkeys(policy.vocabulary)) or CHARACTERS,
        hidden_size=policy.hidden_size,
        num_layers=policy.num_layers,
        num_heads=policy.num_heads,
        max_length=policy.max_length,
        init_std=policy.init_std,
        seed=seed,
    )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device = {name!r} cannot be used: {reason}") from error
    return device


def build_pool(config: Config, policies: Mapping[str, TransformersPolicy]) -> PolicyPool:
    """Start the engines and return who plays which role.

    Raises:
        ConfigError: An engine cannot be started or reached.
    """
    members: dict[str, Policy] = {}
    for name, policy in policies.items():
        engine, sync = build_engine(config, name, policy)
        members[name] = Policy(
            name=name,
            encode=policy.encode,
            encode_answer=policy.encode_answer,
            batcher=Batcher(engine, overlaps=config.rollout.env_threads > 0),
            updater=policy if policy.is_trainable else None,
            sync=sync,
        )
    return PolicyPool(policies=members, roles=config.roles)


def build_trainer(
    config: Config,
    environments: tuple[TextEnv[Any], TextEnv[Any]],
    pool: PolicyPool,
    recorder: Recorder,
    files: RunFiles,
    *,
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
        stop: Tells when to stop early.
        runner: Runs rollouts; one event loop for the whole run.
    """
    env, held_out_env = environments
    episodes, held_out_episodes = (make_episodes(config, one) for one in environments)
    failures = FailureLog(config.rollout.max_failed_fraction)
    return Trainer(
        config=config,
        pool=pool,
        warm_start=WarmStart(config, env, pool, stop),
        sampler=Sampler(episodes, pool, config, failures, runner),
        held_out=HeldOutSet(held_out_env, held_out_episodes, config, failures, runner),
        recorder=recorder,
        checkpoints=files.checkpoints,
        stop=stop,
    )
