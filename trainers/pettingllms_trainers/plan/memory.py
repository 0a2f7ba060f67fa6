"""Memory that a run needs on each GPU, estimated from sizes of models and settings.

Exact are weights, gradients, optimizer state and what layers keep for the backward pass (see
`shapes`); estimates are what libraries and allocators take for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pettingllms_trainers.backends.engines import computes_elsewhere
from pettingllms_trainers.backends.hf.shapes import ModelShape, activation_bytes, micro_batch_sizes
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import PolicyConfig, base_groups
from pettingllms_trainers.types import Lengths

USABLE = 0.92
"""Share of a GPU's memory that a run can fill: the rest is lost in fragments."""

_CONTEXT_BYTES = 1 << 30
"""CUDA itself, its libraries, and the buffers of collective operations, per process."""
_PROCESS_BYTES = 480 << 20
"""Python, PyTorch, transformers and an environment, without CUDA: measured before a model loads."""
_HEAP_SHARE = 1.5
"""Heap of a process on a CPU over the activations in it: glibc leaves holes where aligned blocks
were. Tensors alone are as planned, 1,225 of 1,233 MiB; their heap was 1.25 to 1.7 times as large.
With every tensor mapped on its own it is 1.0, which takes half as much time again."""
_ENGINE_BYTES = 2 << 30
"""What an engine takes besides weights and KV cache: graphs and the activations of a prefill."""
_SLEEPING_BYTES = 1 << 30
"""What of it stays while it sleeps."""
_ENGINE_CONTEXT_BYTES = 1 << 29
"""CUDA of an engine in a process of its own, which its share of the memory does not count."""
_FLOAT, _HALF = 4, 2
_ADAM_BYTES = {32: 2 * _FLOAT, 8: 2 * (1 + _FLOAT / 256)}
"""First and second moment, by their bits; eight have a maximum per block."""
_NF4_BYTES = 0.5 + _FLOAT / 64
"""A weight in four bits, with the maximum of its block."""


class PolicyMemory(NamedTuple):
    """Memory of one policy on one GPU, in bytes; `cpu` is on the host."""

    weights: int
    """Its weights, or its share of them; a base that is shared counts with its first policy."""
    gradients: int = 0
    """Gradients, one set for each role that is compared."""
    optimizer: int = 0
    """State of the optimizer; with ZeRO-3 also the gradients, whose buffer stays."""
    reference: int = 0
    """Weights of the reference of a KL penalty."""
    activations: int = 0
    """Activations of a micro-batch, with its logits and lower-precision copies of weights."""
    cpu: int = 0
    """Offloaded weights and optimizer state, and models that only give weights to engines."""

    @property
    def kept(self) -> int:
        """Bytes that are held at all times."""
        return self.weights + self.optimizer + self.reference


class Phase(NamedTuple):
    """Memory that is held at once on the fullest GPU that a trainer computes on, in bytes."""

    trainer: int
    """Weights, optimizer state and activations of the policies, and the process itself."""
    engines: Mapping[str, int]
    """First policy of a base model to the memory of its engine. An engine that is spread over
    several GPUs has as much on each of them."""

    @property
    def total(self) -> int:
        """The sum of both sides."""
        return self.trainer + sum(self.engines.values())


class MemoryPlan(NamedTuple):
    """Estimated memory of one GPU and of its machine, in bytes."""

    policies: Mapping[str, PolicyMemory]
    """Policy with a model to its memory."""
    learning: Mapping[str, int]
    """Base model, by its first policy, to what its policies hold on a GPU on which they learn."""
    kv_cache: int
    """KV caches of all engines on the GPU, or of the model that generates itself."""
    generating: Phase
    """While completions are written."""
    updating: Phase
    """While a policy learns."""
    handing_over: Phase
    """While new weights go to the last engine: the others are awake already."""
    cpu: int
    """Memory of the host for all processes of one machine, the loading of a model included."""
    files: int
    """Files in which weights go to other processes: in shared memory, else on the disk."""

    @property
    def peak(self) -> int:
        """The maximum over the phases."""
        return max(self.generating.total, self.updating.total, self.handing_over.total)


def plan_memory(
    config: Config,
    shapes: Mapping[str, ModelShape],
    lengths: Mapping[str, Lengths],
    *,
    num_ranks: int,
    gpu_bytes: int,
    num_groups: Mapping[str, int] | None = None,
    num_roles: Mapping[str, int] | None = None,
    has_gpu: bool = True,
) -> MemoryPlan:
    """Estimate what one GPU must hold.

    Args:
        num_ranks: Processes, with a GPU each, that share an update.
        gpu_bytes: Memory of one GPU.
        num_groups: Policy to the decisions of a train step, at most; None: any number.
        num_roles: Policy to the roles that it plays; None: as many as [roles] names.
        has_gpu: Whether it is one, where packed completions attend without keeping scores.
    """
    if has_gpu and config.optimizer.packed_attention == "auto":
        optimizer = config.optimizer.model_copy(update={"packed_attention": "flex"})
        config = config.model_copy(update={"optimizer": optimizer})
    groups = base_groups(config.models)
    if num_roles is None:
        num_roles = {name: len(config.roles_of(name)) for name in config.models}
    policies: dict[str, PolicyMemory] = {}
    passing: dict[str, int] = {}
    for base in groups:
        learners = [name for name in base if not config.models[name].frozen]
        compares = config.optimizer.role_gradients and any(num_roles[n] > 1 for n in learners)
        for name in base:
            policy, shape, longest = config.models[name], shapes[name], lengths[name]
            # Adapters of a base learn in the same passes, unless gradients of roles are compared.
            joined = [name] if compares or policy.frozen else learners
            number = sum(num_groups[n] for n in joined) if num_groups else None
            kind = _kind(config, policy)
            activations = max(
                activation_bytes(config, shape, longest, size, kind)
                for size in micro_batch_sizes(config, longest, number)
            )
            activations = round(activations * (1 if has_gpu else _HEAP_SHARE))
            # Those are there at once, to be compared before they are added.
            copies = max(num_roles[name], 1) if compares else 1
            # The base is there once: it is counted with the first of them.
            own = _base_bytes(config, base, shape) if name == (*learners, *base)[0] else 0
            policies[name] = _policy_memory(
                config, policy, shape, activations, num_ranks, copies, own
            )
        gradients = [policies[name].gradients for name in base]
        passing[base[0]] = max(gradients) if compares else sum(gradients)
        passing[base[0]] += max(policies[name].activations for name in base)
    placed = _busiest_gpu(config, groups, policies)
    shown_names = [name for group in placed for name in group]
    kept = sum(policies[name].kept for name in shown_names)
    kept += _CONTEXT_BYTES if has_gpu else _PROCESS_BYTES
    written = {
        name: _written(config, longest, is_bounded=num_groups is not None)
        for name, longest in lengths.items()
    }
    size, can_sleep = config.engine.number_bytes, config.engine.sleeps
    is_remote = not config.engine.can.is_local or config.engine.num_shards > 1
    is_elsewhere = is_remote or computes_elsewhere(config, len(groups))
    context = _ENGINE_CONTEXT_BYTES * is_elsewhere
    engines = _engines(config, [group[0] for group in placed], shapes, gpu_bytes, context)
    # A model that generates itself writes for one policy at a time.
    caches = [size * shapes[name].cache_size * written[name] for name in shown_names]
    own_cache = 0 if config.engine.has_copy else max(caches)
    # A sleeping engine gives back weights and cache, and keeps what CUDA needs.
    asleep = {name: _SLEEPING_BYTES if can_sleep else own.total for name, own in engines.items()}
    waking = {name: own.total for name, own in engines.items()}
    if can_sleep:
        last = next(reversed(waking))
        waking[last] -= engines[last].cache  # woken after the weights
    owners = [name for name in shown_names if not config.models[name].has_adapter]
    moved = [shapes[name] for name in owners if not config.models[name].frozen]
    # The largest matrix, once more: in the engine's precision, or put together from shards.
    largest = max((size * shape.vocab_size * shape.hidden_size for shape in moved), default=0)
    # The host holds what is offloaded, and the last model while it is loaded.
    loading = _FLOAT * max(shape.num_parameters for shape in shapes.values())
    return MemoryPlan(
        policies=policies,
        learning={
            base[0]: passing[base[0]] + sum(policies[name].kept for name in base) for base in groups
        },
        kv_cache=own_cache + sum(own.cache for own in engines.values()),
        generating=Phase(kept + own_cache, {name: own.total for name, own in engines.items()}),
        # Bases learn one after another.
        updating=Phase(kept + max(passing[group[0]] for group in placed), asleep),
        handing_over=Phase(kept + largest * config.engine.has_copy, waking),
        cpu=num_ranks * (sum(memory.cpu for memory in policies.values()) + loading),
        files=is_elsewhere * max(size * shapes[group[0]].num_parameters for group in groups),
    )


def _kind(config: Config, policy: PolicyConfig) -> str:
    """How a policy computes while it learns; see `activations`."""
    precision = config.engine.precision
    if policy.has_adapter:
        return f"{precision} adapter"
    is_half = config.is_sharded and precision != "float32"
    return f"{precision} weights" if is_half else precision


def _base_bytes(config: Config, names: Sequence[str], shape: ModelShape) -> int:
    """What a model takes that is not trained: a base, or the model of a frozen policy."""
    size = config.engine.number_bytes
    if all(config.models[name].lora.base_precision == "engine" for name in names):
        return size * shape.num_parameters
    # Embeddings and the head stay as they are: they are looked up, or decide every logit.
    quantised = shape.num_matrix_parameters - shape.vocab_size * shape.hidden_size
    return round(_NF4_BYTES * quantised) + size * (shape.num_parameters - quantised)


def _policy_memory(
    config: Config,
    policy: PolicyConfig,
    shape: ModelShape,
    activations: int,
    num_ranks: int,
    num_gradients: int,
    base: int,
) -> PolicyMemory:
    """What a policy has, with frozen weights of `base` bytes; roles can have own gradients.

    ZeRO has a float32 copy of its share of the weights.
    """
    size = config.engine.number_bytes
    if policy.frozen:
        return PolicyMemory(0, cpu=base) if config.engine.has_copy else PolicyMemory(base)
    trained, own = shape.num_trained, _FLOAT * shape.num_trained
    moment_bytes = _ADAM_BYTES[config.optimizer.state_bits]
    gradients, moments = own * num_gradients, round(moment_bytes * trained)
    reference = own if config.loss.kl_coefficient else 0
    if policy.has_adapter:
        if policy.lora.base_precision == "nf4":  # one matrix at a time is computed with in full
            activations += size * shape.hidden_size * max(shape.intermediate_size, shape.query_size)
        return PolicyMemory(base + own, gradients, moments, reference, activations)
    if config.fsdp.enabled:
        # Put together are the embeddings with the head, and two layers; gradients go in float32.
        inner = shape.num_matrix_parameters - shape.vocab_size * shape.hidden_size
        activations += (size + _FLOAT) * (trained - inner + 2 * inner // shape.num_layers)
        own, gradients, moments, reference = (
            number // num_ranks for number in (own, gradients, moments, reference)
        )
        return PolicyMemory(own, gradients, moments, reference, activations)
    stage, offload = config.deepspeed.stage, config.deepspeed.offload
    if not stage:
        # In bfloat16 a forward pass makes copies of all matrices, which the backward pass needs;
        # the output layer computes in float32.
        matrices = shape.num_matrix_parameters - shape.vocab_size * shape.hidden_size
        activations += _HALF * matrices if size == _HALF else 0
        return PolicyMemory(own, gradients, moments, reference, activations)
    weights, optimizer = size * trained, round((_FLOAT + moment_bytes) * trained) // num_ranks
    gradients = own // num_ranks if stage >= 2 else (size + _FLOAT) * trained
    cpu = 0
    if stage == 3:
        weights, reference = weights // num_ranks, reference // num_ranks
        # DeepSpeed's shard of the gradients is one buffer, made once and there at all times.
        optimizer, gradients = optimizer + gradients, 0
    if offload != "none":
        cpu, optimizer, gradients = optimizer + own // num_ranks * (stage < 3), 0, 0
    if offload == "all":
        cpu, weights = cpu + weights, 0
    return PolicyMemory(weights, gradients, optimizer, reference, activations, cpu)


def _written(config: Config, lengths: Lengths, *, is_bounded: bool) -> int:
    """The tokens that the engine in this process holds at once, at most."""
    prompt, completion = lengths
    written = config.engine.tokens_per_batch
    if is_bounded:
        algorithm = config.algorithm
        together = algorithm.candidates_per_decision * completion + prompt
        together = max(together, *(num * sum(lengths) for num in algorithm.continuations(1)))
        episodes = config.rollout.num_levels * algorithm.episodes_per_level * together
        evaluated = config.evaluation.num_episodes * sum(lengths)
        written = min(written, max(episodes, evaluated))
    return max(written, sum(lengths))


def _busiest_gpu(
    config: Config, groups: Sequence[tuple[str, ...]], policies: Mapping[str, PolicyMemory]
) -> list[tuple[str, ...]]:
    """The base models, by their policies, that share the fullest GPU."""
    if not config.ray.enabled:
        return list(groups)
    # Ray places workers where there is room: at worst the largest ones share a GPU.
    ordered = sorted(groups, key=lambda group: -sum(policies[name].kept for name in group))
    share = config.ray.gpus_per_worker
    return ordered[: max(1, int(1 / share))] if 0 < share < 1 else ordered[:1]


class _EngineMemory(NamedTuple):
    """Memory of an engine on one GPU, in bytes."""

    cache: int
    total: int


def _engines(
    config: Config,
    names: Sequence[str],
    shapes: Mapping[str, ModelShape],
    gpu_bytes: int,
    context: int,
) -> dict[str, _EngineMemory]:
    """What the engine of each base has on a GPU, by the first policy of the base."""
    vllm = config.engine.vllm
    found: dict[str, _EngineMemory] = {}
    for name in names if config.engine.can.reserves_memory else ():
        weights = config.engine.number_bytes * shapes[name].num_parameters
        weights //= config.engine.num_shards
        cache, share = vllm.kv_cache_bytes, round(vllm.share * gpu_bytes)
        # Without a size of its own vLLM takes its share whole, whatever it needs.
        total = weights + cache + _ENGINE_BYTES if cache else share
        found[name] = _EngineMemory(max(total - weights - _ENGINE_BYTES, 0), total + context)
    return found
