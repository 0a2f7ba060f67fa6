"""Memory that a run needs on each GPU, estimated from sizes of models and settings.

Exact are weights, gradients, optimizer state and what layers keep for the backward pass; estimates
are what libraries take for themselves, and how far memory can be filled. Legend: N tokens of a
micro-batch, T longest completion, S longest prompt and completion together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pettingllms_trainers.backends.hf.head import MAX_LOGITS
from pettingllms_trainers.config import Config, DeepSpeedConfig
from pettingllms_trainers.config.policies import PolicyConfig, base_groups
from pettingllms_trainers.plan.shapes import ModelShape
from pettingllms_trainers.rollout.sampler import num_candidates_per_decision

__all__ = ["USABLE", "Lengths", "MemoryPlan", "PolicyMemory", "gib", "plan_memory"]

USABLE = 0.92
"""Share of a GPU's memory that a run can fill: the rest is lost in fragments."""

_CONTEXT_BYTES = 1 << 30
"""CUDA itself, its libraries, and the buffers of collective operations, per process."""
_ENGINE_BYTES = 2 << 30
"""What an engine takes besides weights and KV cache: graphs and the activations of a prefill."""
_SLEEPING_BYTES = 1 << 30
"""What of it stays while it sleeps."""
_FLOAT, _HALF = 4, 2
_ADAM_BYTES = 2 * _FLOAT
"""First and second moment."""
_LOGIT_BYTES = 18
"""Per logit at its peak: as the model gave it, in float32, log-softmax, and two of its entropy."""

_LAYER_BYTES: dict[str, tuple[float, float, float, float]] = {
    # Kept for the backward pass per token and layer, times hidden size, feed-forward size, query
    # size and key-value size: counted with `torch.autograd.graph.saved_tensors_hooks`.
    "float32": (24.0, 16.0, 20.25, 28.2),
    "bfloat16": (26.0, 8.0, 12.25, 15.2),
    "bfloat16 weights": (16.0, 8.0, 12.25, 16.2),
    "adapter": (18.5, 8.2, 10.4, 14.3),
}
_RESIDUAL_BYTES = {"float32": 4, "bfloat16": 4, "bfloat16 weights": 2, "adapter": 2}
"""Per hidden number that a layer passes on."""


class Lengths(NamedTuple):
    """Longest sequences of a policy, in tokens."""

    prompt: int
    completion: int


class PolicyMemory(NamedTuple):
    """What one policy has on one GPU, in bytes; `cpu` is on the host."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    activations: int
    """Of a micro-batch, its logits and lower-precision copies of weights included."""
    cpu: int

    @property
    def kept(self) -> int:
        """What is there at all times."""
        return self.weights + self.optimizer + self.reference

    @property
    def passing(self) -> int:
        """What is there during its update only."""
        return self.gradients + self.activations


class MemoryPlan(NamedTuple):
    """Estimate for one GPU, in bytes."""

    policies: Mapping[str, PolicyMemory]
    engine_weights: int
    """Copies of weights in all engines on the GPU."""
    kv_cache: int
    engine_total: int
    """All that the engines take while they generate."""
    generating: int
    """Peak while completions are written."""
    updating: int
    """Peak while a policy learns."""
    cpu: int
    """Needed on the host by all processes of one machine, the loading of a model included."""

    @property
    def peak(self) -> int:
        """The maximum of both."""
        return max(self.generating, self.updating)


def gib(num_bytes: float) -> str:
    """Return a number of bytes for people."""
    return "<0.1" if 0 < num_bytes < 0.05 * (1 << 30) else f"{num_bytes / (1 << 30):.1f}"


def plan_memory(
    config: Config,
    shapes: Mapping[str, ModelShape],
    lengths: Mapping[str, Lengths],
    *,
    num_ranks: int,
    gpu_bytes: int,
    num_groups: Mapping[str, int] | None = None,
    has_gpu: bool = True,
) -> MemoryPlan:
    """Estimate what one GPU must hold.

    Args:
        config: The run's configuration.
        shapes: Policy to the sizes of its model.
        lengths: Policy to its longest sequences.
        num_ranks: Processes, with a GPU each, that share an update.
        gpu_bytes: Memory of one GPU.
        num_groups: Policy to the decisions of a train step, at most; None: any number.
        has_gpu: Whether it is one, where packed completions attend without keeping scores.
    """
    if has_gpu and config.optimizer.packed_attention == "auto":
        optimizer = config.optimizer.model_copy(update={"packed_attention": "flex"})
        config = config.model_copy(update={"optimizer": optimizer})
    groups = base_groups(config.models)
    batches = {
        name: _Batch.of(config, lengths[name], None if num_groups is None else num_groups[name])
        for name in config.models
    }
    policies: dict[str, PolicyMemory] = {}
    for group in groups:
        for index, name in enumerate(group):
            policies[name] = _policy_memory(
                config, config.models[name], shapes[name], batches[name], num_ranks, index == 0
            )
    placed = _busiest_gpu(config, groups, policies)
    shown = [policies[name] for group in placed for name in group]
    kept = sum(memory.kept for memory in shown) + _CONTEXT_BYTES
    engine_weights, kv_cache, engine_total = _engines(config, placed, shapes, gpu_bytes, batches)
    asleep = _SLEEPING_BYTES * len(placed) if config.engine.vllm.sleep else engine_total
    return MemoryPlan(
        policies=policies,
        engine_weights=engine_weights,
        kv_cache=kv_cache,
        engine_total=engine_total,
        generating=kept + engine_total,
        updating=kept
        + max((memory.passing for memory in shown), default=0)
        + (asleep if config.engine.kind == "vllm" else 0),
        cpu=_host_bytes(shapes, policies, num_ranks),
    )


def _host_bytes(
    shapes: Mapping[str, ModelShape], policies: Mapping[str, PolicyMemory], num_ranks: int
) -> int:
    """Return what the host holds: while the last model is loaded, or afterwards."""
    kept = sum(memory.cpu for memory in policies.values())
    loading = _FLOAT * max(shape.num_parameters for shape in shapes.values())
    return num_ranks * (kept + loading)


class _Batch(NamedTuple):
    """What of a policy's data is in memory at once, in tokens, at most."""

    lengths: Lengths
    learnt: int
    """Input tokens of a micro-batch."""
    targets: int
    """Tokens of completions among them."""
    written: int
    """Prompts and completions that the engine in this process holds."""

    @classmethod
    def of(cls, config: Config, lengths: Lengths, num_groups: int | None) -> _Batch:
        """Return the sizes for a policy with so many groups in a train step; None: any number."""
        optimizer, (prompt, completion) = config.optimizer, lengths
        num_candidates = num_candidates_per_decision(config.rollout)
        longest = prompt + completion
        of_group = num_candidates * completion + prompt * (
            1 if optimizer.packing else num_candidates
        )
        learnt, written = optimizer.tokens_per_microbatch, config.engine.tokens_per_batch
        if num_groups is not None:
            size = min(optimizer.groups_per_minibatch or num_groups, num_groups)
            demonstrated = config.warm_start.batch_size * longest
            most = max(size * of_group, demonstrated if config.warm_start.num_steps else 0)
            learnt = min(learnt, most)
            shared = num_candidates * completion + prompt
            episodes = config.rollout.num_levels * (
                shared if config.rollout.mode == "tree" else shared * config.rollout.num_candidates
            )
            written = min(written, max(episodes, config.evaluation.num_episodes * longest))
        learnt = max(learnt, longest)
        return cls(
            lengths=lengths,
            learnt=learnt,
            # Logits of prompts are not computed.
            targets=math.ceil(learnt * num_candidates * completion / of_group),
            written=max(written, longest),
        )


def activation_bytes(config: Config, shape: ModelShape, batch: _Batch, kind: str) -> int:
    """Return what a micro-batch keeps, at its peak.

    Args:
        config: The run's configuration.
        shape: Sizes of the model.
        batch: What a micro-batch holds.
        kind: A key of `_LAYER_BYTES`.
    """
    optimizer, lengths, num_tokens = config.optimizer, batch.lengths, batch.learnt
    sizes = (shape.hidden_size, shape.intermediate_size, shape.query_size, shape.key_value_size)
    per_token = sum(a * b for a, b in zip(_LAYER_BYTES[kind], sizes, strict=True))
    size = _FLOAT if kind == "float32" else _HALF
    keeps_scores = optimizer.packing and optimizer.packed_attention != "flex"
    scores = size * shape.num_heads * _most_scores(num_tokens, lengths) * keeps_scores
    layer = num_tokens * per_token
    # More logits than these are computed in chunks.
    logits = _LOGIT_BYTES * min(batch.targets * shape.vocab_size, max(MAX_LOGITS, shape.vocab_size))
    if optimizer.gradient_checkpointing:
        entries = _RESIDUAL_BYTES[kind] * num_tokens * shape.hidden_size * shape.num_layers
        return round(entries + max(logits, layer + 4 * scores))
    # Every layer keeps its attention weights; three more are there while one is computed.
    return round((layer + scores) * shape.num_layers + max(logits, 3 * scores))


def _most_scores(num_tokens: int, lengths: Lengths) -> int:
    """Return the most pairs of completion token and seen token in a micro-batch.

    Attention over shared prompts has a mask and fewer key-value heads than query heads: PyTorch may
    have no fused kernel for that, and then holds the scores.
    """
    prompt = min(max((num_tokens - lengths.completion) // 2, 0), lengths.prompt)
    return max(num_tokens - prompt, lengths.completion) * (prompt + lengths.completion)


def _policy_memory(
    config: Config,
    policy: PolicyConfig,
    shape: ModelShape,
    batch: _Batch,
    num_ranks: int,
    has_base: bool,
) -> PolicyMemory:
    is_half = config.engine.precision == "bfloat16"
    frozen = (_HALF if is_half else _FLOAT) * shape.num_parameters if has_base else 0
    if policy.frozen:
        is_on_gpu = config.engine.kind == "transformers"
        return PolicyMemory(frozen * is_on_gpu, 0, 0, 0, 0, frozen * (not is_on_gpu))
    trained, reference = shape.num_trained, _FLOAT * shape.num_trained
    if not config.loss.kl_coefficient:
        reference = 0
    if policy.has_adapter:
        kind = "adapter" if is_half else "float32"
        activations = activation_bytes(config, shape, batch, kind)
        own = _FLOAT * trained
        return PolicyMemory(frozen + own, own, _ADAM_BYTES * trained, reference, activations, 0)
    stage = config.deepspeed.stage
    kind = "bfloat16 weights" if is_half and stage else config.engine.precision
    activations = activation_bytes(config, shape, batch, kind)
    if not stage:
        # In bfloat16 a forward pass makes copies of all matrices, which the backward pass needs.
        copies = _HALF * shape.num_matrix_parameters if is_half else 0
        own = _FLOAT * trained
        return PolicyMemory(own, own, _ADAM_BYTES * trained, reference, activations + copies, 0)
    size = _HALF if is_half else _FLOAT
    return _sharded_memory(config.deepspeed, trained, size, activations, reference, num_ranks)


def _sharded_memory(
    deepspeed: DeepSpeedConfig,
    trained: int,
    size: int,
    activations: int,
    reference: int,
    num_ranks: int,
) -> PolicyMemory:
    """Return what training all weights takes; ZeRO has a float32 copy of its share of them.

    Args:
        deepspeed: What is sharded, and what is kept on the host.
        trained: Number of weights.
        size: Bytes of a weight as layers compute with it.
        activations: Of a micro-batch.
        reference: Bytes of the reference's weights, unshared.
        num_ranks: Processes that share.
    """
    weights = size * trained
    optimizer = (_FLOAT + _ADAM_BYTES) * trained // num_ranks
    gradients = _FLOAT * trained // num_ranks if deepspeed.stage >= 2 else (size + _FLOAT) * trained
    cpu = 0
    if deepspeed.stage == 3:
        weights, reference = weights // num_ranks, reference // num_ranks
    if deepspeed.offload != "none":
        cpu, optimizer, gradients = optimizer + _FLOAT * trained // num_ranks, 0, 0
    if deepspeed.offload == "all":
        cpu, weights = cpu + weights, 0
    return PolicyMemory(weights, gradients, optimizer, reference, activations, cpu)


def _busiest_gpu(
    config: Config, groups: Sequence[tuple[str, ...]], policies: Mapping[str, PolicyMemory]
) -> list[tuple[str, ...]]:
    """Return the base models, by their policies, that share the fullest GPU."""
    if not config.ray.enabled:
        return list(groups)
    ordered = sorted(groups, key=lambda group: -sum(policies[name].kept for name in group))
    share = config.ray.gpus_per_worker
    return ordered[: max(1, int(1 / share))] if 0 < share < 1 else ordered[:1]


def _engines(
    config: Config,
    groups: Sequence[tuple[str, ...]],
    shapes: Mapping[str, ModelShape],
    gpu_bytes: int,
    batches: Mapping[str, _Batch],
) -> tuple[int, int, int]:
    """Return weights, KV cache and all of the engines on a GPU."""
    engine = config.engine
    size = _HALF if engine.precision == "bfloat16" else _FLOAT
    models = [shapes[group[0]] for group in groups]
    if engine.kind == "transformers":
        # One policy writes at a time.
        cache = max(
            2 * size * model.key_value_size * model.num_layers * batches[name].written
            for model, group in zip(models, groups, strict=True)
            for name in group
        )
        return 0, cache, cache
    if engine.kind == "vllm_server":
        return 0, 0, 0
    weights = sum(size * model.num_parameters for model in models)
    weights //= engine.vllm.tensor_parallel_size
    rest = _ENGINE_BYTES * len(models)
    if engine.vllm.kv_cache_bytes:
        cache = engine.vllm.kv_cache_bytes * len(models)
        return weights, cache, weights + cache + rest
    total = round(engine.vllm.gpu_memory_utilization * gpu_bytes) * len(models)
    return weights, max(total - weights - rest, 0), total
