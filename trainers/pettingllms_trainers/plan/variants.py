"""What the same run would need with other settings: sharded, with adapters, with less at once."""

from __future__ import annotations

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
    for name, keys, other in _variants(config, num_ranks):
        if other != config:
            shapes = {name: shape_of(name, policy) for name, policy in other.models.items()}
            memory = plan_memory(other, shapes, lengths, num_ranks=num_ranks, gpu_bytes=gpu_bytes)
            is_small = memory.peak <= USABLE * gpu_bytes
            found.append(Variant(name, keys, memory.peak, memory.cpu, is_small))
    return tuple(found)


def _variants(config: Config, num_ranks: int) -> Iterator[tuple[str, str, Config]]:
    full = _with_rank(config, 0)
    yield "all weights", "deepspeed.stage = 0", _with_deepspeed(full, 0, "none")
    for stage in (1, 2, 3) if num_ranks > 1 else ():
        label = f"all weights, ZeRO {stage} over {num_ranks} GPUs"
        yield label, f"deepspeed.stage = {stage}", _with_deepspeed(full, stage, "none")
    label, keys = "all weights, kept on the CPU", 'deepspeed.stage = 3, deepspeed.offload = "all"'
    yield label, keys, _with_deepspeed(full, 3, "all")
    adapted = _with_deepspeed(_with_rank(config, _RANK), 0, "none")
    yield "LoRA adapters", f"every_policy.lora.rank = {_RANK}", adapted
    few: dict[str, Any] = {"gradient_checkpointing": True}
    if config.optimizer.tokens_per_microbatch > _FEW_TOKENS:
        few["tokens_per_microbatch"] = _FEW_TOKENS
    keys = ", ".join(f"optimizer.{key} = {str(value).lower()}" for key, value in few.items())
    yield "as it is, less at once", keys, _updated(config, "optimizer", few)
    if config.engine.kind == "vllm":
        asleep = config.engine.vllm.model_copy(update={"sleep": True})
        other = _updated(config, "engine", {"vllm": asleep})
        yield "as it is, engines asleep", "engine.vllm.sleep = true", other


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
