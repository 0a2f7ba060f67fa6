"""How fast a model writes and learns on which GPU, from data sheets.

Source:
    The roofline of decoding: an iteration takes the longer of reading the weights and computing
    (Pope et al., arXiv 2211.05102, section 2); the KV cache is read on top of it. 2 N operations
    for a token of a model of N weights, three times as many to learn from it (Kaplan et al.,
    arXiv 2001.08361, section 2.1). Changed: what is reached of the data sheet is an interval, and
    an update also reads and writes what it keeps between its products, which takes longer than the
    products where layers are narrow.
"""

from __future__ import annotations

from typing import NamedTuple

from pettingllms.errors import counted
from pettingllms_trainers.backends.hf.shapes import ModelShape, token_bytes
from pettingllms_trainers.errors import ConfigError

_TERA, _GIGA = 1e12, 1e9


class Gpu(NamedTuple):
    """Figures of a GPU's data sheet, and its price."""

    flops: float
    """Operations per second in bfloat16, without sparsity."""
    bytes_per_s: float
    """Bandwidth of its memory."""
    num_bytes: float
    """Size of its memory."""
    usd_per_hour: float
    """Price of an hour in clouds in 2026; `--usd-per-hour` sets another."""


GPUS = {
    "a100": Gpu(312 * _TERA, 2.04 * _TERA, 80 * _GIGA, 1.5),
    "b200": Gpu(2250 * _TERA, 8.0 * _TERA, 180 * _GIGA, 5.0),
    "h100": Gpu(989 * _TERA, 3.35 * _TERA, 80 * _GIGA, 2.5),
    "h200": Gpu(989 * _TERA, 4.8 * _TERA, 141 * _GIGA, 3.2),
    "l40s": Gpu(362 * _TERA, 0.864 * _TERA, 48 * _GIGA, 0.9),
}


class Efficiency(NamedTuple):
    """Shares of the data sheet that are reached, and two figures that no data sheet has."""

    bandwidth: float
    """Share of the memory's bandwidth, in (0, 1]."""
    products: float
    """Share of the operations per second, in (0, 1]."""
    iteration_s: float
    """Seconds of an engine's iteration besides the GPU's work."""
    link_bytes_per_s: float
    """Rate at which new weights go to the engines."""


SLOW = Efficiency(0.5, 0.35, 4e-3, 10 * _GIGA)
USUAL = Efficiency(0.7, 0.5, 2e-3, 25 * _GIGA)
FAST = Efficiency(0.85, 0.65, 1e-3, 50 * _GIGA)
"""Between the first and the last lies what engines and updates reach as a rule. Three updates on an
H100 did (`benchmarks/results/gpu_campaign.json`); vLLM was not measured."""

_PASSES_BYTES = 11
"""How often a pass reads or writes what layers keep for the backward pass: fitted to the three."""


class EngineSpeed(NamedTuple):
    """The speed of an engine, in seconds.

    An iteration writes one token of each of b sequences. It takes
    `iteration_s + max(weights_s, b * token_s) + cache_s * (tokens in the KV cache)`.
    """

    prompt_s: float = 0.0
    """Time to read a prompt token, in which no sequence advances."""
    iteration_s: float = 0.0
    """Constant part of an iteration."""
    weights_s: float = 0.0
    """Time to read the weights once."""
    token_s: float = 0.0
    """Time to compute one token of a sequence."""
    cache_s: float = 0.0
    """Time to read one token of the KV cache."""
    max_tokens: float = float("inf")
    """Tokens that the KV cache holds."""

    def iteration(self, num: float, num_cached: float) -> float:
        """The seconds of an iteration over some sequences, at least one."""
        # Weights are read while products are computed: the slower of both is what an iteration
        # takes.
        work = max(self.weights_s, num * self.token_s)
        return self.iteration_s + work + self.cache_s * num_cached


class LearningSpeed(NamedTuple):
    """The speed of updates, in seconds."""

    token_s: float = 0.0
    """Time of a token of prompts and answers, on one GPU."""
    sync_s: float = 0.0
    """Time in which new weights go to the engines."""


def engine_of(shape: ModelShape, gpu: Gpu, num_shards: int, reached: Efficiency) -> EngineSpeed:
    """What vLLM should take for a model in bfloat16.

    Args:
        num_shards: GPUs that one engine is spread over.
        reached: Shares of the data sheet.

    Raises:
        ConfigError: The weights do not fit.
    """
    weights, memory = 2.0 * shape.num_parameters, 0.9 * gpu.num_bytes * num_shards
    if weights >= memory:
        raise ConfigError(
            f"{weights / _GIGA:.0f} GB of weights do not fit into {counted(num_shards, 'GPU')} of "
            f"{gpu.num_bytes / _GIGA:.0f} GB; set engine.vllm.tensor_parallel_size"
        )
    bandwidth = reached.bandwidth * gpu.bytes_per_s * num_shards
    operations = 2.0 * shape.num_parameters / (reached.products * gpu.flops * num_shards)
    return EngineSpeed(
        prompt_s=operations,
        iteration_s=reached.iteration_s,
        weights_s=weights / bandwidth,
        token_s=operations,
        cache_s=2.0 * shape.cache_size / bandwidth,
        max_tokens=(memory - weights) / (2.0 * shape.cache_size),
    )


def learning_of(
    shape: ModelShape,
    gpu: Gpu,
    reached: Efficiency,
    *,
    is_recomputed: bool,
    is_checkpointed: bool,
) -> LearningSpeed:
    """What an update should take in bfloat16.

    Args:
        shape: The model; with an adapter its frozen weights need no gradients.
        reached: Shares of the data sheet.
        is_recomputed: Whether log-probabilities are computed once more before the update.
        is_checkpointed: Whether activations are computed once more in the backward pass.
    """
    frozen = shape.num_parameters - shape.num_trained
    # Two passes of products for a frozen weight, a third for the gradient of a trained one.
    operations = 6.0 * shape.num_trained + 4.0 * frozen
    num_more = is_recomputed + is_checkpointed
    operations += 2.0 * shape.num_parameters * num_more
    kept = shape.num_layers * token_bytes(shape, "bfloat16 adapter" if frozen else "bfloat16")
    num_bytes = _PASSES_BYTES * (3 + num_more) * kept  # a backward pass counts twice
    return LearningSpeed(
        token_s=operations / (reached.products * gpu.flops)
        + num_bytes / (reached.bandwidth * gpu.bytes_per_s),
        sync_s=2.0 * shape.num_trained / reached.link_bytes_per_s,
    )
