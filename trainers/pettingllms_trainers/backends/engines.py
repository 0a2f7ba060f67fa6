"""Who generates for a policy: its own model, vLLM in this process, or vLLM servers."""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from pettingllms_trainers.backends.device import check_parallel
from pettingllms_trainers.backends.hf.adapters import Adapter
from pettingllms_trainers.backends.hf.engine import TransformersEngine
from pettingllms_trainers.backends.hf.grammars import Grammars
from pettingllms_trainers.backends.hf.model import LoadedModel, use_float32_head
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.self_check import check_model
from pettingllms_trainers.backends.protocols import (
    EngineBuilder,
    EngineSpec,
    EngineWithWeights,
    TakesWeights,
)
from pettingllms_trainers.backends.vllm.handover import MEMORY_FILES
from pettingllms_trainers.config import Config, EngineConfig
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.policies.protocols import Generate, Sync
from pettingllms_trainers.ranks import Ranks


class WeightSync:
    """Moves a policy's weights to its engine; see `Sync`.

    Args:
        engine: Gets them.
        policy: Has them. Those of a frozen policy are moved only when the engine needs them.
    """

    def __init__(self, engine: TakesWeights, policy: TransformersPolicy) -> None:
        self._engine, self._policy = engine, policy
        self._is_trained = policy.updater is not None

    def release(self) -> None:
        self._engine.release()

    def push(self) -> None:
        # A frozen policy moves once, unless a server was started again.
        if self._is_trained or self._engine.needs_weights:
            self._engine.load_weights(self._policy.named_weights())


class AdapterSync:
    """Moves LoRA adapters to an engine that serves all policies of their base; see `Sync`.

    Weights of the base are moved only when the engine, or a part of it, lacks them; then all
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
        self._engine.release()

    def push(self) -> None:
        # Asked once: loading changes the answer.
        is_new = self._engine.needs_weights
        if is_new:
            self._engine.load_weights(self._policies[0].named_weights())
        for policy in self._policies:
            if is_new or policy.updater is not None:
                self._push(policy.loaded.adapter)

    def _push(self, adapter: Adapter | None) -> None:
        if adapter is None or adapter.name is None:  # the bare base plays
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


def build_engines(
    config: Config, policies: Mapping[str, TransformersPolicy], ranks: Ranks
) -> dict[str, tuple[Generate, Sync | None]]:
    """Who generates for each policy, and how that gets new weights.

    Policies on one base share an engine, and its sync.

    Raises:
        ConfigError: An engine cannot be started or reached.
    """
    if not config.engine.has_copy:
        return _own_models(policies, config.engine)
    check_parallel(config, ranks.size)
    groups: dict[object, list[str]] = {}
    for name, policy in policies.items():
        adapter = policy.loaded.adapter
        owner = policy if adapter is None else adapter.base
        groups.setdefault((id(owner), config.policies[name].endpoints), []).append(name)
    engines: dict[str, tuple[Generate, Sync | None]] = {}
    for names in groups.values():
        members = {name: policies[name] for name in names}
        try:
            # Engines of one process take turns, and an engine in this one keeps the update waiting.
            # Allocators of engines that sleep cannot share a process: vLLM refuses the second one.
            # The parts of engines on several GPUs have processes of their own anyway.
            is_spread = config.engine.num_shards > 1
            has_own_process = computes_elsewhere(config, len(groups)) and not is_spread
            engines |= _shared(config, members, ranks, has_own_process)
        except ConfigError as error:
            raise ConfigError(f"[policies.{names[0]}]: {error}") from error
    return {name: engines[name] for name in policies}


def computes_elsewhere(config: Config, num_engines: int) -> bool:
    """Whether each engine of this process computes in processes of its own.

    Then all of them can generate at the same time, and while policies learn.
    """
    is_copy_here = config.engine.has_copy and config.engine.can.is_local
    return is_copy_here and (num_engines > 1 or config.plays_beside_updates)


def _own_models(
    policies: Mapping[str, TransformersPolicy], config: EngineConfig
) -> dict[str, tuple[Generate, Sync | None]]:
    engines: dict[str, tuple[Generate, Sync | None]] = {}
    of_base: dict[tuple[int, int], TransformersEngine] = {}
    for name, policy in policies.items():
        if policy.is_sharded:
            copied = CopiedModel(policy.loaded, config, policy.grammars)
            engines[name] = (copied, WeightSync(copied, policy))
        else:
            # An adapter with a tokenizer of its own may end its answers by another token.
            key = (id(policy.loaded.model), id(policy.loaded.tokenizer))
            engines[name] = (of_base.setdefault(key, policy.engine), None)
    return engines


def _shared(
    config: Config,
    policies: Mapping[str, TransformersPolicy],
    ranks: Ranks,
    has_own_process: bool,
) -> dict[str, tuple[Generate, Sync | None]]:
    """The engine of policies on one base, or of one policy that has all its weights."""
    first = next(iter(policies))
    adapters = {name: p.loaded.adapter for name, p in policies.items() if p.loaded.adapter}
    lora_ranks = [adapter.rank for adapter in adapters.values() if adapter.rank]
    build_engine: EngineBuilder = import_module(config.engine.can.module).build_engine
    engine = build_engine(
        EngineSpec(
            config,
            policies[first].loaded,
            endpoints=config.policies[first].endpoints,
            ranks=ranks,
            has_own_process=has_own_process,
            max_adapters=len(lora_ranks),
            max_adapter_rank=max(lora_ranks, default=0),
        )
    )
    if not adapters:
        return {first: (engine, WeightSync(engine, policies[first]))}
    sync = AdapterSync(
        engine, list(policies.values()), folder_for_files(config, _num_adapter_bytes(policies))
    )
    return dict.fromkeys(adapters, (engine, sync))


def _num_adapter_bytes(policies: Mapping[str, TransformersPolicy]) -> int:
    """What the files of all adapters take: trained weights are in float32."""
    sizes = {  # policies on one base share its model, and every adapter is in all of them
        id(parameter): parameter.numel()
        for policy in policies.values()
        for name, parameter in policy.loaded.model.named_parameters()
        if "lora_" in name
    }
    return 4 * sum(sizes.values())


def folder_for_files(config: Config, num_bytes: int) -> str | Path | None:
    """Where files for engines are written: to memory, if it can hold them.

    Args:
        config: Its `engine.vllm_server.sync_dir` counts before all else.
        num_bytes: Size of one version; two are there at a time.

    Returns:
        The folder; None for that of temporary files.
    """
    if config.engine.vllm_server.sync_dir:
        return config.engine.vllm_server.sync_dir
    has_memory = MEMORY_FILES.is_dir() and shutil.disk_usage(MEMORY_FILES).free >= 2 * num_bytes
    return MEMORY_FILES if has_memory else None


class CopiedModel(TransformersEngine):
    """An engine with full weights of its own; see `TakesWeights`."""

    def __init__(
        self, loaded: LoadedModel, config: EngineConfig, grammars: Grammars | None = None
    ) -> None:
        model_config = copy.deepcopy(loaded.model.config)
        # The check replaces it where layouts are right.
        model_config._attn_implementation = "sdpa"
        with torch.random.fork_rng(devices=[]):
            model: Any = AutoModelForCausalLM.from_config(model_config, dtype=loaded.model.dtype)
        model.generation_config = loaded.model.generation_config
        self._model = model.to(loaded.model.device).eval().requires_grad_(False)
        if config.precision == "bfloat16":
            use_float32_head(self._model)
        copied = LoadedModel(self._model, loaded.tokenizer)
        wants_sharing = config.attention == "shared_prefix"
        shares_prompts = wants_sharing and check_model(copied, config.precision) is None
        super().__init__(copied, config, shares_prompts=shares_prompts, grammars=grammars)
        self.needs_weights = True

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        own = dict(self._model.named_parameters())
        for name, weight in weights:
            own[name].copy_(weight)
        self.needs_weights = False

    def release(self) -> None:
        """Do nothing: the copy stays."""
