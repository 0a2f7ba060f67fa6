"""Who generates for a policy: its own model, vLLM in this process, or vLLM servers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from pettingllms_trainers.backends.transformers import TransformersPolicy
from pettingllms_trainers.backends.vllm import VLLMEngine
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.policy import Generate, Sync

__all__ = ["EngineWithWeights", "WeightSync", "build_engine"]


class EngineWithWeights(Generate, Protocol):
    """An engine that has a copy of the weights."""

    @property
    def needs_weights(self) -> bool:
        """Whether it, or a part of it, has not got the weights that were loaded last."""
        ...

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the weights; nothing that was computed with the old ones is used again."""
        ...

    def release(self) -> None:
        """Free what an update may need."""
        ...


class WeightSync:
    """The way of a policy's weights to its engine; see `Sync`.

    Args:
        engine: Gets them.
        policy: Has them. Those of a frozen policy are moved only when the engine needs them.
    """

    def __init__(self, engine: EngineWithWeights, policy: TransformersPolicy) -> None:
        self._engine, self._policy = engine, policy

    def release(self) -> None:
        """See `Sync.release`."""
        self._engine.release()

    def push(self) -> None:
        """See `Sync.push`."""
        if self._policy.is_trainable or self._engine.needs_weights:
            self._engine.load_weights(self._policy.named_weights())


def build_engine(
    config: Config, name: str, policy: TransformersPolicy
) -> tuple[Generate, Sync | None]:
    """Return who generates for a policy, and how it gets new weights.

    Raises:
        ConfigError: The engine cannot be started or reached.
    """
    if config.engine.kind == "transformers":
        return policy, None
    try:
        engine = _with_weights(config, name, policy)
    except ConfigError as error:
        raise ConfigError(f"[policies.{name}]: {error}") from error
    return engine, WeightSync(engine, policy)


def _with_weights(config: Config, name: str, policy: TransformersPolicy) -> EngineWithWeights:
    if config.engine.kind == "vllm":
        with tempfile.TemporaryDirectory(prefix="pettingllms-") as folder:
            # Weights come from the policy, so that there is one source of them.
            policy.model.config.save_pretrained(folder)
            policy.tokenizer.save_pretrained(folder)
            return VLLMEngine(
                folder,
                policy.tokenizer,
                stop_ids=policy.stop_ids,
                config=config.engine,
                has_weights=False,
            )
    # Imported here: only this engine speaks HTTP.
    from pettingllms_trainers.backends.vllm_server import VLLMServerEngine

    return VLLMServerEngine(
        config.policies[name].endpoints,
        policy.tokenizer,
        stop_ids=policy.stop_ids,
        config=config.engine.vllm_server,
        dtype=torch.float32 if config.engine.precision == "float32" else torch.bfloat16,
    )
