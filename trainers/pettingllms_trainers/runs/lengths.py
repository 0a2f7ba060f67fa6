"""The longest sequences of a run, and the room that they need in vLLM's cache on a CPU."""

from __future__ import annotations

from collections.abc import Mapping

from pettingllms_trainers.backends.hf.shapes import ModelShape, shape_of
from pettingllms_trainers.config import Config
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.runs.prompts import RolePrompt
from pettingllms_trainers.types import Lengths

__all__ = ["lengths_of", "with_cpu_cache"]

_BLOCK = 32
"""Tokens of a block of vLLM's cache on a CPU; a sequence fills its last one in part."""


def lengths_of(
    config: Config, shapes: Mapping[str, ModelShape], prompts: Mapping[str, RolePrompt]
) -> dict[str, Lengths]:
    """Return the longest sequences of every policy.

    A prompt can grow up to what the engine takes beside a completion; where no limit is set, it is
    taken as a first prompt with one more completion, of another agent, in it.
    """
    lengths: dict[str, Lengths] = {}
    longest = {
        role: sampling_of(config.rollout, role).max_completion_tokens
        for role in {*config.roles, *prompts}
    }
    for name, shape in shapes.items():
        roles = [role for role in prompts if config.policy_of(role) == name]
        completion = max(longest[role] for role in roles)
        limit = shape.context_length
        if config.engine.max_length:
            prompt = min(config.engine.max_length, limit) - completion
        else:
            first = max(prompts[role].num_tokens for role in roles)
            prompt = min(first + max(longest.values()), max(limit - completion, 1))
        lengths[name] = Lengths(max(prompt, 1), completion)
    return lengths


def with_cpu_cache(config: Config, prompts: Mapping[str, RolePrompt]) -> Config:
    """Return a configuration whose vLLM engines have a cache for the run's own lengths.

    For engines on a CPU, where no share of a GPU's memory decides it. The cache holds all sequences
    that a train step or an evaluation asks for at once, as far as `engine.vllm.max_num_seqs` lets
    them be written together, and at least one of `engine.vllm.max_model_len`, which vLLM insists
    on.

    Args:
        config: Returned as it is with another engine, or a size of its own.
        prompts: Role to its longest prompt in the first turn.
    """
    vllm = config.engine.vllm
    if not config.engine.can.reserves_memory or vllm.kv_cache_bytes:
        return config
    shapes = {name: shape_of(name, policy) for name, policy in config.models.items()}
    lengths = lengths_of(config, shapes, prompts)
    algorithm = config.algorithm
    per_level = algorithm.episodes_per_level * algorithm.candidates_per_decision
    asked = config.rollout.num_levels * per_level
    num_sequences = min(vllm.max_num_seqs, max(asked, config.evaluation.num_episodes))
    needed = 0
    for name, shape in shapes.items():
        longest = min(vllm.max_model_len or shape.context_length, shape.context_length)
        blocks = num_sequences * -(-sum(lengths[name]) // _BLOCK)
        # One more: vLLM keeps an empty block for itself.
        num_tokens = (1 + max(blocks, -(-longest // _BLOCK))) * _BLOCK
        needed = max(needed, config.engine.number_bytes * shape.cache_size * num_tokens)
    sized = vllm.model_copy(update={"kv_cache_bytes": needed})
    return config.model_copy(update={"engine": config.engine.model_copy(update={"vllm": sized})})
