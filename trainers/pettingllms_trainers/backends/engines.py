"""Who generates for a policy: its own model, vLLM in this process, or vLLM servers."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from pettingllms_trainers.backends.hf.adapters import Adapter
from pettingllms_trainers.backends.hf.copied import CopiedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.vllm.engine import VLLMEngine
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.policies.protocols import Generate, Sync
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import GenerateRequest, TokenCompletion

__all__ = ["AdapterEngine", "AdapterSync", "EngineWithWeights", "WeightSync", "build_engines"]


class TakesWeights(Generate, Protocol):
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


class EngineWithWeights(TakesWeights, Protocol):
    """An engine that has a copy of the weights, and room for adapters."""

    def load_adapter(self, name: str, directory: Path) -> None:
        """Load a LoRA adapter, or replace it; the directory stays until it is replaced."""
        ...

    async def generate_with(
        self, requests: Sequence[GenerateRequest], adapters: Sequence[str | None]
    ) -> list[list[TokenCompletion]]:
        """Generate, each request with an adapter that was loaded, or None."""
        ...


class WeightSync:
    """The way of a policy's weights to its engine; see `Sync`.

    Args:
        engine: Gets them.
        policy: Has them. Those of a frozen policy are moved only when the engine needs them.
    """

    def __init__(self, engine: TakesWeights, policy: TransformersPolicy) -> None:
        self._engine, self._policy = engine, policy

    def release(self) -> None:
        """See `Sync.release`."""
        self._engine.release()

    def push(self) -> None:
        """See `Sync.push`."""
        if self._policy.is_trainable or self._engine.needs_weights:
            self._engine.load_weights(self._policy.named_weights())


class AdapterSync:
    """The way of LoRA adapters to an engine that serves all policies of their base; see `Sync`.

    Weights of the base are moved only when the engine, or a part of it, has not got them; then all
    adapters follow. Files of adapters are removed when nobody reads them any more.

    Args:
        engine: Gets them.
        policies: Have the adapters, all on one base.
        parent: Folder for the files, which the engine must see; None: for temporary files.
    """

    def __init__(
        self,
        engine: EngineWithWeights,
        policies: Sequence[TransformersPolicy],
        parent: str | Path | None = None,
    ) -> None:
        self._engine, self._policies = engine, policies
        self._folder = Path(tempfile.mkdtemp(prefix="pettingllms-adapters-", dir=parent))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._loaded: dict[str, Path] = {}
        self._num_loads = 0

    def release(self) -> None:
        """See `Sync.release`."""
        self._engine.release()

    def push(self) -> None:
        """See `Sync.push`."""
        is_new = self._engine.needs_weights
        if is_new:
            self._engine.load_weights(self._policies[0].named_weights())
        for policy in self._policies:
            if policy.adapter is not None and (is_new or policy.is_trainable):
                self._push(policy.adapter)

    def _push(self, adapter: Adapter) -> None:
        if adapter.name is None:
            return
        # A folder of its own: what reads the old files is not disturbed, nor shown half of these.
        folder = self._folder / f"{self._num_loads}"
        self._num_loads += 1
        adapter.write(folder)
        self._engine.load_adapter(adapter.name, folder)
        old = self._loaded.pop(adapter.name, None)
        self._loaded[adapter.name] = folder
        if old is not None:
            shutil.rmtree(old)


class AdapterEngine:
    """What one policy sees of an engine that serves several: requests carry its adapter.

    Args:
        engine: Generates for all policies of a base.
        adapter: The policy's; None when it plays as the bare base.
    """

    def __init__(self, engine: EngineWithWeights, adapter: str | None) -> None:
        self._engine, self._adapter = engine, adapter
        self.is_concurrent, self.limits = engine.is_concurrent, engine.limits

    def check(self, request: GenerateRequest) -> None:
        """See `Generate.check`."""
        self._engine.check(request)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """See `Generate.generate`."""
        return await self._engine.generate_with(requests, [self._adapter] * len(requests))


def build_engines(
    config: Config, policies: Mapping[str, TransformersPolicy], ranks: Ranks
) -> dict[str, tuple[Generate, Sync | None]]:
    """Return who generates for each policy, and how that gets new weights.

    Policies on one base share an engine, and its way of getting weights.

    Raises:
        ConfigError: An engine cannot be started or reached.
    """
    if config.engine.kind == "transformers":
        return {name: _own_model(policy) for name, policy in policies.items()}
    groups: dict[object, list[str]] = {}
    for name, policy in policies.items():
        owner = policy if policy.adapter is None else policy.adapter.base
        groups.setdefault((id(owner), config.policies[name].endpoints), []).append(name)
    engines: dict[str, tuple[Generate, Sync | None]] = {}
    for names in groups.values():
        try:
            engines |= _shared(config, {name: policies[name] for name in names}, ranks)
        except ConfigError as error:
            raise ConfigError(f"[policies.{names[0]}]: {error}") from error
    return {name: engines[name] for name in policies}


def _own_model(policy: TransformersPolicy) -> tuple[Generate, Sync | None]:
    if not policy.is_sharded:
        return policy, None
    copied = CopiedModel(policy)
    return copied, WeightSync(copied, policy)


def _shared(
    config: Config, policies: Mapping[str, TransformersPolicy], processes: Ranks
) -> dict[str, tuple[Generate, Sync | None]]:
    """Return the engine of policies on one base, or of one policy that has all its weights."""
    first = next(iter(policies))
    adapters = {name: p.adapter for name, p in policies.items() if p.adapter is not None}
    ranks = [adapter.rank for adapter in adapters.values()]
    engine = _with_weights(config, first, policies[first], ranks, processes)
    if not adapters:
        return {first: (engine, WeightSync(engine, policies[first]))}
    sync = AdapterSync(engine, list(policies.values()), _folder_for_files(config))
    return {name: (AdapterEngine(engine, a.name), sync) for name, a in adapters.items()}


def _with_weights(
    config: Config,
    name: str,
    policy: TransformersPolicy,
    ranks: Sequence[int],
    processes: Ranks,
) -> EngineWithWeights:
    """Return an engine of a policy's model with room for adapters of these ranks; 0 needs none."""
    max_adapters, max_adapter_rank = sum(rank > 0 for rank in ranks), max(ranks, default=0)
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
                max_adapters=max_adapters,
                max_adapter_rank=max_adapter_rank,
            )
    # Imported here: only this engine speaks HTTP.
    from pettingllms_trainers.backends.vllm.server import VLLMServerEngine

    return VLLMServerEngine(
        config.policies[name].endpoints,
        policy.tokenizer,
        stop_ids=policy.stop_ids,
        config=config.engine.vllm_server,
        dtype=torch.float32 if config.engine.precision == "float32" else torch.bfloat16,
        max_adapters=max_adapters,
        max_adapter_rank=max_adapter_rank,
        processes=processes,
    )


def _folder_for_files(config: Config) -> str | Path | None:
    """Return where files for engines are written: to memory, unless servers want them elsewhere."""
    memory = Path("/dev/shm")
    return config.engine.vllm_server.sync_dir or (memory if memory.is_dir() else None)
