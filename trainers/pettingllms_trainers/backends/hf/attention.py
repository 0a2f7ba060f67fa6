"""Attention over shared prompts for any `transformers` model of the attention interface.

A model is called with one flat row of tokens ``[1, N]`` and a *layout*: the object that says which
tokens see which. The layout travels as a keyword argument of `forward` down to the attention
function registered here, so all other layers of the model work on exactly the N real tokens, with
no padding. `PrefillLayout` and `DecodeLayout` generate, `PackedLayout` trains. Without a layout the
function is PyTorch's scaled dot product attention, and the model is an ordinary one.

Why not a mask over padded rows: a group of K completions would hold its prompt K times, and a mask
``[N, N]`` over one flat row costs memory quadratic in the tokens of a whole batch.

Legend of shapes, here and in `layouts` and `engine`: N flat tokens, R rows,
L row length, B prompts, P prompt length, C completions, K completions of a prompt, T completion
length, V vocabulary, H query heads, J key-value heads, G = H / J, D head size.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from pettingllms.errors import PettingLLMsError

ATTENTION = "pettingllms_layout"
"""Name of the attention function in the registry of `transformers`."""

_CHANGES = {
    "softcap": "soft-capped scores",
    "s_aux": "sinks",
    "position_bias": "a bias of positions",
    "alibi": "a bias of positions",
}
"""What models pass to an attention function beside what layouts know."""

_CONTEXT_DEPENDENT_ROPE = ("dynamic", "longrope")


class UnsupportedModel(PettingLLMsError):
    """Layouts would be wrong for a model; says why."""


class TokenLayout(Protocol):
    """Which of the N flat tokens of a forward call attend which."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None
    ) -> Tensor:
        """The attention output ``[N, H, D]`` of one layer.

        Args:
            layer: Index of the layer.
            query: ``[N, H, D]``, already scaled.
            key: ``[N, J, D]``.
            value: ``[N, J, D]``.
            window: Number of positions a token sees, itself included; None for all.
        """
        ...


class Ragged:
    """Rows of different lengths, stored one after the other, seen as a padded rectangle.

    Args:
        lengths: ``[R]`` number of items of each row, all at least 1.
        device: Where the index tensors live.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.num_rows, self.length, self.total = len(lengths), max(lengths), sum(lengths)
        # Equal lengths need no gather: padding is then a view, and most batches of a tree are such.
        self.is_regular = self.total == self.num_rows * self.length
        self.lengths = torch.tensor(lengths, device=device)
        slots = torch.arange(self.length, device=device)  # [L]
        self.valid = slots < self.lengths[:, None]  # [R, L]
        """``[R, L]``: which slots hold an item."""
        self._slots = self.valid.flatten().nonzero().squeeze(1)  # [N]: where each item is
        starts = self.lengths.cumsum(0) - self.lengths  # [R]
        # [R * L]: what each slot holds. Free slots repeat an item of their own row: zeros would do
        # as well, but an index out of range would not.
        self._sources = (starts[:, None] + slots).where(self.valid, starts[:, None]).flatten()

    def pad(self, items: Tensor) -> Tensor:
        """``[R, L, ...]`` of ``[N, ...]``; free slots repeat the first item of their row."""
        if not self.is_regular:
            items = items.index_select(0, self._sources)
        return items.reshape(self.num_rows, self.length, *items.shape[1:])

    def unpad(self, rows: Tensor) -> Tensor:
        """The items ``[N, ...]`` of ``[R, L, ...]``: the inverse of `pad`."""
        items = rows.flatten(0, 1)
        return items if self.is_regular else items.index_select(0, self._slots)


def causal_attention(query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
    """Causal attention inside each row, ``[R, L, H, D]``, of right-padded rows.

    Args:
        query: ``[R, L, H, D]``, already scaled.
        key: ``[R, L, J, D]``.
        value: ``[R, L, J, D]``.
        window: Number of positions a token sees, itself included; None for all.
    """
    length = query.shape[1]
    mask = None
    if window is not None and window < length:
        distance = torch.arange(length, device=query.device)
        distance = distance[:, None] - distance  # [L, L]: how far back a key is
        mask = (distance >= 0) & (distance < window)
    return grouped_attention(query, key, value, mask)


def grouped_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Attention ``[R, L, H, D]`` in which several query heads share a key head.

    Args:
        query: ``[R, L, H, D]``, already scaled.
        key: ``[R, S, J, D]``; J divides H.
        value: ``[R, S, J, D]``.
        mask: True where a token sees another, or what is added to the scores, broadcast to ``[R, H,
            L, S]``; None: causal.
    """
    if _is_slow(query, key):
        # Computed again backward: kept scores would grow with the square of the length.
        found: Any = checkpoint(
            _attention_by_products,
            *(query, key, value, mask),
            use_reentrant=False,
            preserve_rng_state=False,
        )
        return found
    num_sharing = query.shape[2] // key.shape[2]
    # Copies of the keys cost less than a kernel that keeps all scores.
    if num_sharing > 1 and _needs_equal_heads(query, mask):
        key, value = (part.repeat_interleave(num_sharing, 2) for part in (key, value))
        num_sharing = 1
    output = F.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None,
        # Queries come scaled: models differ in the factor, and layouts need not know it.
        scale=1.0,
        enable_gqa=num_sharing > 1,
    )
    return output.transpose(1, 2)


_MAX_SCORES = 256 * 256
"""Scores of a row and head up to which products are faster on a CPU in bfloat16; measured."""


def _is_slow(query: Tensor, key: Tensor) -> bool:
    """Whether PyTorch's kernel is slower than products: backward, 14 times for 30 tokens."""
    is_short = query.shape[1] * key.shape[1] <= _MAX_SCORES
    return is_short and query.is_cpu and query.dtype == torch.bfloat16


def _attention_by_products(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> Tensor:
    """The same as `grouped_attention`, with all scores in memory; a mask is for all heads."""
    if mask is None:
        mask = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).tril()
    mask = mask[..., None, :, :]  # [..., 1, L, S]
    seen = SeenKeys(key.transpose(1, 2), value.transpose(1, 2), None)
    heads = query.transpose(1, 2).unflatten(1, (key.shape[2], -1))  # [R, J, G, L, D]
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)
    scores = seen.scores(heads) + mask
    return seen.weighted(scores.softmax(-1)).flatten(1, 2).transpose(1, 2)


def _needs_equal_heads(query: Tensor, mask: Tensor | None) -> bool:
    """Whether shared key heads would leave only a kernel that keeps all scores.

    On a GPU flash attention knows them, but takes neither a mask nor float32; the
    memory-efficient kernel takes both.
    """
    return query.is_cuda and (mask is not None or query.dtype == torch.float32)


class SeenKeys(NamedTuple):
    """Keys that some queries see."""

    keys: Tensor
    """``[B, J, P, D]``."""
    values: Tensor
    """``[B, J, P, D]``."""
    hidden: Tensor | None
    """True where a key must not be seen, broadcast to the scores; None when all are seen."""

    def scores(self, query: Tensor) -> Tensor:
        """The scores ``[B, J, ..., P]`` of ``[B, J, ..., D]``; they share the keys."""
        inner = query.shape[2:-1]
        # One product for all that share the keys, instead of one per completion: this is the gain.
        scores = query.flatten(2, -2) @ self.keys.transpose(-1, -2)  # [B, J, prod(inner), P]
        scores = scores.unflatten(2, inner).float()  # in bfloat16 exp() would lose most digits
        if self.hidden is None:
            return scores
        # The least finite number, not -inf: a part may be hidden as a whole.
        return scores.masked_fill_(self.hidden, torch.finfo(scores.dtype).min)

    def weighted(self, weights: Tensor) -> Tensor:
        """The weighted sum of the values ``[B, J, ..., D]`` from ``[B, J, ..., P]``."""
        weights = weights.to(self.values.dtype)
        return (weights.flatten(2, -2) @ self.values).unflatten(2, weights.shape[2:-1])


def split_attention(query: Tensor, own: SeenKeys, prompts: SeenKeys, siblings: Ragged) -> Tensor:
    """Attention of completions over themselves and the prompts that they share.

    Args:
        query: ``[C, J, ..., D]``, scaled; the dimensions between share keys and values.
        own: Keys of the completions; the scores are ``[C, J, ..., T]``.
        prompts: Keys of the prompts, in the order of their completions; the scores are ``[B, J, K,
            ..., P]``.
        siblings: The completions of each prompt.

    Source: Juravsky et al. 2024 (Hydragen, arXiv 2402.05099), section 3: products with a shared
        prefix and with the suffix of each are computed apart. Changed: both scores go through one
        softmax, where Hydragen merges two results by their log-sum-exp: for the short prompts and
        completions of rollouts a copy of the scores costs less than the merge. Ragged groups, rows
        that join and leave, and the same split for training.
    """
    of_prompt = prompts.scores(siblings.pad(query).transpose(1, 2))
    # Back to one row per completion, so that both parts go through one softmax.
    of_prompt = siblings.unpad(of_prompt.transpose(1, 2))  # [C, J, ..., P]
    weights = torch.cat([of_prompt, own.scores(query)], -1).softmax(-1)
    length = prompts.keys.shape[2]
    prompt_weights = siblings.pad(weights[..., :length]).transpose(1, 2)  # [B, J, K, ..., P]
    from_prompt = siblings.unpad(prompts.weighted(prompt_weights).transpose(1, 2))
    return own.weighted(weights[..., length:]) + from_prompt


def layout_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    layout: TokenLayout | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as the layout says; without one, as scaled dot product attention does.

    Args:
        module: The attention module of the model; has ``layer_idx``.
        query: ``[1, H, N, D]`` with a layout, else ``[B, H, L, D]``.
        key: ``[1, J, N, D]``.
        value: ``[1, J, N, D]``.
        attention_mask: Ignored with a layout.
        scaling: Factor of the scores; None for ``1 / sqrt(D)``.
        dropout: Dropout of the weights; must be 0 with a layout.
        layout: Which tokens see which.
        sliding_window: Number of positions a token sees; None for all.
        **kwargs: What the model passes besides; changes of the scores are refused with a layout.

    Raises:
        UnsupportedModel: The model changes the scores in a way that layouts do not know.
    """
    if layout is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **kwargs
        )
    # A model may pass more than its configuration says; wrong scores would go unnoticed.
    changes = [what for name, what in _CHANGES.items() if kwargs.get(name) is not None]
    if changes or dropout:
        raise UnsupportedModel(f"its attention has {', '.join(changes) or 'dropout'}")
    scaled = query[0].transpose(0, 1) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)  # [N, J, D], query [N, H, D]
    layer: Any = module.layer_idx
    return layout.attend(layer, scaled, keys, values, sliding_window)[None], None


def use_layouts(model: PreTrainedModel) -> None:
    """Make the model accept layouts; its ordinary `forward` and `generate` keep working.

    Raises:
        UnsupportedModel: The model's attention cannot be replaced, or its output depends on more
            than the tokens that a layout shows. What it cannot know, `self_check` finds out.
    """
    reason = _unsupported(model)
    if reason is not None:
        raise UnsupportedModel(reason)
    AttentionInterface.register(ATTENTION, layout_attention)
    # Without a mask function transformers would build none for ordinary batches of this model.
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    model.set_attn_implementation(ATTENTION)


def _unsupported(model: PreTrainedModel) -> str | None:
    """Why layouts would be wrong for this model; None when they are right."""
    config = model.config.get_text_config()
    if not getattr(model, "_supports_attention_backend", False):
        return "it does not use the attention interface of transformers"
    # Logits of all tokens would be the largest tensor of an update, most of them unused.
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        return "its forward cannot be asked for the logits of some tokens only"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds - {"full_attention", "sliding_attention"}:
        return f"layers of kind {sorted(kinds)} keep a state that is not keys and values"
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in _CONTEXT_DEPENDENT_ROPE:
        return f"rope type {rope['rope_type']} depends on the longest sequence of the batch"
    return None


def flat_forward(
    model: PreTrainedModel,
    token_ids: Tensor,
    positions: Tensor,
    layout: TokenLayout,
    keep: Tensor | None,
) -> Tensor:
    """The logits ``[M, V]`` of the kept tokens of one flat row.

    Args:
        model: Prepared by `use_layouts`.
        token_ids: ``[N]``.
        positions: ``[N]`` position of each token in its own sequence.
        layout: Which tokens see which.
        keep: ``[M]`` indices of the tokens whose logits are wanted, repeats allowed; None: all.
    """
    # transformers takes a mask of four dimensions as it is, so none is built; layouts ignore it.
    no_mask = token_ids.new_empty((1, 1, 1, 1), dtype=torch.bool)
    output = model(
        input_ids=token_ids[None],
        position_ids=positions[None],
        attention_mask=no_mask,
        use_cache=False,
        logits_to_keep=0 if keep is None else keep,
        layout=layout,
    )
    return output.logits[0]
