"""The KV cache of vLLM engines on a CPU, where no share of a GPU's memory decides it."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trainers.config import Config
from pettingllms_trainers.plan.gpus import devices_of
from pettingllms_trainers.plan.shapes import shape_of
from pettingllms_trainers.plan.step import first_prompts, lengths_of
from pettingllms_trainers.rollout.environments import RunEnvironment

__all__ = ["with_cache"]

_BLOCK = 32
"""Tokens of a block of vLLM's cache on a CPU; a sequence fills its last one in part."""


def with_cache(config: Config, environments: Sequence[RunEnvironment]) -> Config:
    """Return a configuration whose vLLM engines have a cache for the run's own lengths.

    It holds all sequences that a train step or an evaluation asks for at once, as far as
    `engine.vllm.max_num_seqs` lets them be written together, and at least one of
    `engine.vllm.max_model_len`, which vLLM insists on.

    Args:
        config: Returned as it is with a GPU, another engine, or a size of its own.
        environments: What the run plays; it is not changed.
    """
    vllm = config.engine.vllm
    if (
        config.engine.kind != "vllm"
        or vllm.kv_cache_bytes
        or devices_of(config, None, None).num_gpus
    ):
        return config
    shapes = {name: shape_of(name, policy) for name, policy in config.models.items()}
    lengths = lengths_of(config, shapes, first_prompts(config, environments))
    algorithm = config.algorithm
    per_level = algorithm.episodes_per_level * algorithm.candidates_per_decision
    asked = config.rollout.num_levels * per_level
    num_sequences = min(vllm.max_num_seqs, max(asked, config.evaluation.num_episodes))
    size = 2 if config.engine.precision == "bfloat16" else 4
    needed = 0
    for name, shape in shapes.items():
        longest = min(vllm.max_model_len or shape.context_length, shape.context_length)
        blocks = num_sequences * -(-sum(lengths[name]) // _BLOCK)
        # One more: vLLM keeps an empty block for itself.
        num_tokens = (1 + max(blocks, -(-longest // _BLOCK))) * _BLOCK
        needed = max(needed, 2 * size * shape.key_value_size * shape.num_layers * num_tokens)
    sized = vllm.model_copy(update={"kv_cache_bytes": needed})
    return config.model_copy(update={"engine": config.engine.model_copy(update={"vllm": sized})})
