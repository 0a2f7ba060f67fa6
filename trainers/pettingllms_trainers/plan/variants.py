"""What the same run would need with other settings: sharded, with adapters, with less at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pettingllms_trainers.config import Config
from pettingllms_trainers.plan.memory import USABLE, Lengths, plan_memory
from pettingllms_trainers.plan.shapes import shape_of

__all__ = ["Variant", "plan_variants"]

_RANK = 32
_FEW_TOKENS = 4096


class Variant(NamedTuple):
    """Settings that differ from those of the run, and what comes of them."""

    name: str
    keys: str
    """The settings, as in a run file."""
    peak: int
    """Bytes on one GPU."""
    cpu: int
    """Bytes on the host."""
    fits: bool


def plan_variants(
    config: Config, lengths: Mapping[str, Lengths], *, num_ranks: int, gpu_bytes: int
) -> tuple[Variant, ...]:
    """Return other ways to train the same policies, the plainest one first.

    Args:
        config: The run's configuration.
        lengths: Policy to its longest sequences.
        num_ranks: Processes, with a GPU each, that share an update.
        gpu_bytes: Memory of one GPU.
    """
    found: list[Variant] = []
    for name, other in _variants(config, num_ranks):
        if keys := _changed_keys(config, other):
            shapes = {name: shape_of(name, policy) for name, policy in other.models.items()}
            memory = plan_memory(other, shapes, lengths, num_ranks=num_ranks, gpu_bytes=gpu_bytes)
            is_small = memory.peak <= USABLE * gpu_bytes
            found.append(Variant(name, keys, memory.peak, memory.cpu, is_small))
    return tuple(found)


def _variants(config: Config, num_ranks: int) -> Iterator[tuple[str, Config]]:
    full = _with_rank(config, 0)
    yield "all weights", _with_deepspeed(full, 0, "none")
    for stage in (1, 2, 3) if num_ranks > 1 else ():
        sharded = _with_deepspeed(full, stage, "none")
        yield f"all weights, ZeRO {stage} over {num_ranks} GPUs", sharded
    yield "all weights, optimizer on the CPU", _with_deepspeed(full, 3, "optimizer")
    yield "all weights, kept on the CPU", _with_deepspeed(full, 3, "all")
    yield "LoRA adapters", _with_deepspeed(_with_rank(config, _RANK), 0, "none")
    tokens = min(config.optimizer.tokens_per_microbatch, _FEW_TOKENS)
    few = {"gradient_checkpointing": True, "tokens_per_microbatch": tokens}
    yield "as it is, less at once", _updated(config, "optimizer", few)
    if config.engine.kind == "vllm":
        asleep = config.engine.vllm.model_copy(update={"sleep": True})
        yield "as it is, engines asleep", _updated(config, "engine", {"vllm": asleep})


def _changed_keys(config: Config, other: Config) -> str:
    """Return the settings in which the other configuration differs, as in a run file."""
    pairs: list[tuple[str, Any, Any]] = [
        ("deepspeed", config.deepspeed, other.deepspeed),
        ("optimizer", config.optimizer, other.optimizer),
        ("engine.vllm", config.engine.vllm, other.engine.vllm),
    ]
    pairs += [
        ("every_policy.lora", policy.lora, other.models[name].lora)
        for name, policy in config.models.items()
    ]
    changed = {
        f"{section}.{key} = {json.dumps(value)}": None
        for section, old, new in pairs
        for key, value in new.model_dump().items()
        if getattr(old, key) != value
    }
    return ", ".join(changed)


def _with_rank(config: Config, rank: int) -> Config:
    """Return the configuration with that adapter for every policy that is trained."""
    policies = dict(config.policies)
    for name, policy in config.models.items():
        if not policy.frozen and bool(policy.lora.rank) != bool(rank):
            lora = policy.lora.model_copy(update={"rank": rank})
            policies[name] = policy.model_copy(update={"lora": lora})
    return config.model_copy(update={"policies": policies})


def _with_deepspeed(config: Config, stage: int, offload: str) -> Config:
    return _updated(config, "deepspeed", {"stage": stage, "offload": offload})


def _updated(config: Config, section: str, values: Mapping[str, Any]) -> Config:
    changed = getattr(config, section).model_copy(update=dict(values))
    return config.model_copy(update={section: changed})
