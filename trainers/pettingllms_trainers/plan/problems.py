"""What a start would refuse, and what will not work, each with advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pettingllms_trainers.backends.hf.shapes import tokenizer_of
from pettingllms_trainers.config import Config, PolicyConfig
from pettingllms_trainers.config.advice import start_advice
from pettingllms_trainers.plan import USABLE, Devices, Plan
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.runs.prompts import prompt_problems

__all__ = ["answer_warnings", "errors_of", "gib", "warnings_of"]

_THINKING_TOKENS = 1024
"""Completions shorter than this end while a model still thinks."""


def gib(num_bytes: float) -> str:
    """Return a number of bytes for people."""
    return "<0.1" if 0 < num_bytes < 0.05 * (1 << 30) else f"{num_bytes / (1 << 30):.1f}"


def errors_of(config: Config, plan: Plan) -> Iterator[str]:
    """Yield what a start would refuse, each with advice."""
    contexts = {name: shape.context_length for name, shape in plan.shapes.items()}
    yield from prompt_problems(config, contexts, plan.prompts)


def warnings_of(config: Config, plan: Plan) -> Iterator[str]:
    """Yield what will not work, each with advice."""
    yield from _memory_warnings(config, plan)
    yield from answer_warnings(config, plan.answers)
    yield from start_advice(config)
    yield from _machine_warnings(config, plan)
    most = config.rollout.max_staleness
    if most and not config.plays_beside_updates:
        yield (
            f"rollout.max_staleness = {most} saves no time here, since the model that learns also "
            "generates, or evaluates V for the rollouts: take an engine of its own (engine.kind) "
            'and another algorithm than "value", or leave the key out'
        )


def answer_warnings(config: Config, answers: Mapping[str, int | None]) -> Iterator[str]:
    """Yield which roles may not be able to finish an answer; see `answer_lengths`."""
    for role, longest in answers.items():
        name = config.policy_of(role) or ""
        limit = sampling_of(config.rollout, role).max_completion_tokens
        key = f"rollout.max_completion_tokens = {limit}"
        if (longest or 0) > limit:
            yield (
                f"answers of {role} will be truncated: those of a scripted policy have up to "
                f"{longest} tokens, and {key}. Raise it, or that of rollout.per_role.{role}"
            )
        elif limit < _THINKING_TOKENS and _thinks(config.models[name]):
            yield (
                f"{role} will think, and {key} leaves little room for it: set "
                f"policies.{name}.chat_template_kwargs = {{ enable_thinking = false }}, or allow "
                f"{_THINKING_TOKENS} tokens or more"
            )


def _thinks(policy: PolicyConfig) -> bool:
    """Return whether a chat template can turn thinking off, and is not asked to."""
    tokenizer = tokenizer_of(policy)
    template = "" if tokenizer is None else str(tokenizer.chat_template or "")
    is_off = (policy.chat_template_kwargs or {}).get("enable_thinking") is False
    return "enable_thinking" in template and not is_off


def _memory_warnings(config: Config, plan: Plan) -> Iterator[str]:
    devices, memory = plan.devices, plan.memory
    if not plan.fits:
        where = "GPU" if devices.num_gpus else "the machine"
        yield (
            f"{gib(memory.peak)} GiB are needed at the peak; of {gib(devices.num_bytes)} GiB of "
            f"{where} a run can fill {gib(USABLE * devices.num_bytes)}. What helps: "
            f"{', '.join(_advice(config, devices))}, or more or larger GPUs"
        )
    if not config.engine.can.reserves_memory or not devices.num_gpus:
        return
    longest = max(sum(lengths) for lengths in plan.lengths.values())
    shape = max(plan.shapes.values(), key=lambda shape: shape.num_parameters)
    num_key_heads = shape.key_value_size * shape.num_heads // shape.query_size
    parts = min(config.engine.num_shards, num_key_heads)
    per_token = config.engine.number_bytes * (shape.cache_size // parts)
    if memory.kv_cache < per_token * longest:
        yield (
            f"the KV cache of {gib(memory.kv_cache)} GiB holds no sequence of {longest} tokens "
            f"({gib(per_token * longest)} GiB): raise engine.vllm.gpu_memory_utilization, or lower "
            "engine.vllm.max_model_len"
        )


def _advice(config: Config, devices: Devices) -> Iterator[str]:
    """Yield the settings that lower the peak, those that cost least first."""
    if not config.optimizer.gradient_checkpointing:
        yield "optimizer.gradient_checkpointing = true"
    yield f"a lower optimizer.tokens_per_microbatch (now {config.optimizer.tokens_per_microbatch})"
    can_sleep = config.engine.can.reserves_memory and not config.engine.sleeps
    if can_sleep and devices.num_gpus:
        yield "engine.vllm.sleep = true"
    adapters = [policy for policy in config.models.values() if policy.has_adapter]
    if devices.num_gpus and any(policy.lora.base_precision != "nf4" for policy in adapters):
        yield 'every_policy.lora.base_precision = "nf4"'
    if any(not policy.frozen and not policy.has_adapter for policy in config.models.values()):
        if devices.num_gpus and config.optimizer.state_bits != 8 and not config.is_sharded:
            yield "optimizer.state_bits = 8"
        if devices.num_gpus > 1 and not config.shards_weights:
            yield "fsdp.enabled = true or deepspeed.stage = 3"
        if devices.num_gpus and config.deepspeed.offload != "all":
            yield 'deepspeed.stage = 3 with deepspeed.offload = "all"'
        yield "every_policy.lora.rank = 32"


def _machine_warnings(config: Config, plan: Plan) -> Iterator[str]:
    number, size = plan.devices.num_gpus, config.engine.num_shards
    if not number and config.engine.sleeps:
        yield "engine.vllm.sleep needs a GPU"
    for name, shape in plan.shapes.items():
        if shape.num_heads % size:
            yield (
                f"engine.vllm.tensor_parallel_size = {size} does not divide the "
                f"{shape.num_heads} attention heads of {config.models[name].model}: vLLM will "
                "refuse it"
            )
    if 0 < number < size and not config.ray.enabled:
        yield (
            f"engine.vllm.tensor_parallel_size is {size}, and there are {number} GPUs: an "
            "engine needs that many"
        )
    if number < plan.devices.num_wanted:
        yield (
            f"Ray is asked for {plan.devices.num_wanted:g} GPUs and there are {number}: fewer "
            "ray.workers_per_policy, or a fraction in ray.gpus_per_worker"
        )
    if config.is_sharded and number < 2 and config.deepspeed.offload == "none":
        key = "fsdp.enabled" if config.fsdp.enabled else "deepspeed.stage"
        yield (
            f"{key} shards nothing in one process: start one for each GPU with "
            "torchrun --nproc-per-node, set deepspeed.offload, or leave the key out"
        )
