"""What an engine with a copy of the weights must do, and what it is started with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from torch import Tensor

from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.protocols import Generate
from pettingllms_trainers.ranks import Ranks


class TakesWeights(Generate, Protocol):
    """An engine that has a copy of the weights."""

    @property
    def needs_weights(self) -> bool:
        """Whether the engine, or a replica of it, lacks the weights that were loaded last."""
        ...

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the weights; unfinished completions continue with the new ones.

        Nothing that was computed with the old ones is used again.

        Args:
            weights: Names as in a Hugging Face checkpoint, without a head that is tied.

        Raises:
            GenerationError: The weights do not fit, or there is no memory for them.
        """
        ...

    def release(self) -> None:
        """Give memory back until the next `load_weights`, if the configuration says so."""
        ...


class EngineWithWeights(TakesWeights, Protocol):
    """An engine that has a copy of the weights, and room for LoRA adapters, which requests name."""

    def load_adapter(self, name: str, directory: Path) -> None:
        """Load a LoRA adapter, or replace it.

        Args:
            name: Any; requests name it.
            directory: As written by peft; it stays until the adapter is replaced.

        Raises:
            InvalidArgument: There is no room for another adapter.
            GenerationError: The adapter does not fit the model.
        """
        ...


class EngineSpec(NamedTuple):
    """What an engine is started with."""

    config: Config
    """The run's configuration."""
    loaded: LoadedModel
    """The model that learns; its weights come later, by `load_weights`."""
    endpoints: Sequence[str]
    """Addresses of its servers, for a kind that is not local; else empty."""
    ranks: Ranks
    """The processes that train together."""
    has_own_process: bool
    """Whether an engine of a local kind computes in a process of its own."""
    max_adapters: int
    """LoRA adapters that can be loaded; 0: none."""
    max_adapter_rank: int
    """Highest rank of an adapter."""


EngineBuilder = Callable[[EngineSpec], EngineWithWeights]
"""Starts an engine; the module of every kind that has a copy of the weights has one, called
`build_engine`. It raises `ConfigError` if the engine cannot be started or reached."""
