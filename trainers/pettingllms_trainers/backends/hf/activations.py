"""What a micro-batch keeps in memory while a policy learns, counted tensor by tensor.

Legend: N input tokens, M targets, B prompts, P prompt length, C completions, T completion length.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pettingllms_trainers.backends.hf.model import MAX_LOGITS
from pettingllms_trainers.backends.hf.shapes import ModelShape
from pettingllms_trainers.config import Config
from pettingllms_trainers.types import Lengths

_FLOAT, _HALF = 4, 2
_LOGIT_BYTES = 16
"""Per logit at its peak: in float32, its log-softmax, and two to compute the entropy."""


class _SavedBytes(NamedTuple):
    """Bytes per token and layer that are kept for the backward pass, by what they grow with.

    Counted with `torch.autograd.graph.saved_tensors_hooks`.
    """

    hidden: float
    """Inputs of both norms in float32, normalised, and as inputs of q, k, v, gate and up."""
    intermediate: float
    """Gate before and after its activation, up, and the input of down."""
    query: float
    """Queries, output of the attention, and the input of o."""
    head_norm: float
    """Inputs of the norms of queries and keys, where the model has these."""
    number: int
    """Bytes of a key or value."""
    residual: int
    """Bytes of a hidden number that one layer passes to the next."""


_KEPT: dict[str, _SavedBytes] = {
    "float32": _SavedBytes(24, 16, 12, 8, _FLOAT, _FLOAT),
    # Frozen norms keep no normalised copy.
    "float32 adapter": _SavedBytes(16, 16, 12, 4, _FLOAT, _FLOAT),
    # Each product has a cast copy of its input.
    "bfloat16": _SavedBytes(26, 8, 6, 6, _HALF, _FLOAT),
    "bfloat16 weights": _SavedBytes(16, 8, 6, 6, _HALF, _HALF),
    # An adapter keeps the input of its layer, which is that of its neighbours, and little else.
    "bfloat16 adapter": _SavedBytes(12, 8, 6, 4, _HALF, _HALF),
}


class MicroBatchSize(NamedTuple):
    """A micro-batch at its maximum."""

    num_tokens: int
    """N."""
    num_targets: int
    """M; logits of other tokens are not computed."""
    num_prompts: int
    """B."""
    num_completions: int
    """C."""

    @classmethod
    def of(
        cls, lengths: Lengths, num_candidates: int, max_tokens: int, *, is_packed: bool
    ) -> MicroBatchSize:
        """As many groups as fit into some tokens; one completion at least."""
        prompt, completion = lengths
        # The last token of a completion predicts nothing that was sampled: it is not an input.
        own = max(completion - 1, 1)
        of_group = num_candidates * own + prompt * (1 if is_packed else num_candidates)
        num_tokens = max(max_tokens, prompt + own)
        num_completions = max(1, num_tokens * num_candidates // of_group)
        num_prompts = max(1, num_tokens // of_group) if is_packed else num_completions
        return cls(num_tokens, num_completions * completion, num_prompts, num_completions)


def micro_batch_sizes(
    config: Config, lengths: Lengths, num_groups: int | None
) -> list[MicroBatchSize]:
    """The largest micro-batches of train steps and of the warm start."""
    algorithm, optimizer = config.algorithm, config.optimizer
    of_decision, is_packed = algorithm.candidates_per_decision, optimizer.packing
    group_sizes = {of_decision} | ({1} if optimizer.shuffle else set())
    if is_packed:  # decisions of one prompt may be joined
        group_sizes.add(of_decision * algorithm.episodes_per_level)
    found: list[tuple[int, int]] = []  # completions of a group, tokens of all groups
    for number in sorted(group_sizes):
        of_prompt = min(algorithm.usual_candidates * algorithm.episodes_per_level, number)
        of_step = math.ceil((num_groups or 0) * of_decision / number)
        most = math.ceil(optimizer.completions_per_minibatch / of_prompt) or of_step
        copies = 1 if is_packed else number
        of_group = number * (lengths.completion - 1) + copies * lengths.prompt
        found.append((number, min(most, of_step) * of_group))
    if config.warm_start.num_steps:
        found.append((1, config.warm_start.batch_size * (sum(lengths) - 1)))
    most_tokens = optimizer.tokens_per_microbatch
    return [
        MicroBatchSize.of(
            lengths,
            number,
            most_tokens if num_groups is None else min(most_tokens, needed),
            is_packed=is_packed,
        )
        for number, needed in found
    ]


def token_bytes(shape: ModelShape, kind: str) -> float:
    """What a layer keeps of a token for the backward pass, in bytes."""
    kept = _KEPT[kind]
    norms = kept.head_norm * shape.has_head_norms
    return (
        kept.hidden * shape.hidden_size
        + kept.intermediate * shape.intermediate_size
        + (kept.query + norms) * shape.query_size
        + (2 * kept.number + norms) * shape.key_value_size
    )


def activation_bytes(
    config: Config, shape: ModelShape, lengths: Lengths, size: MicroBatchSize, kind: str
) -> int:
    """What a micro-batch takes at its peak: the end of the forward pass."""
    kept, optimizer = _KEPT[kind], config.optimizer
    layer = size.num_tokens * token_bytes(shape, kind)
    if optimizer.packing and optimizer.packed_attention != "flex":
        # Packed rows are padded to one length, and have a copy of their prompt's keys and values.
        keys = size.num_prompts * lengths.prompt + size.num_completions * sum(lengths)
        layer += 2 * kept.number * shape.key_value_size * (keys - size.num_tokens)
    logits = size.num_targets * shape.vocab_size
    # More logits than these are computed in chunks, unless the output layer's weights are sharded.
    chunk = logits if config.shards_weights else max(MAX_LOGITS, shape.vocab_size)
    head = _LOGIT_BYTES * min(logits, chunk)
    if kind in ("bfloat16 weights", "bfloat16 adapter"):
        head += _FLOAT * shape.vocab_size * shape.hidden_size  # the output layer in float32
    if optimizer.gradient_checkpointing:
        entries = kept.residual * size.num_tokens * shape.hidden_size * shape.num_layers
        return round(entries + max(head, layer))
    return round(layer * shape.num_layers + head)
