"""The attention of `PackedLayout` in one fused kernel, for GPUs: FlexAttention with a block mask.

Nothing is copied, padded per row or kept for the backward pass: keys of a prompt are read by all
its completions, and blocks that nobody sees cost nothing. Legend: see `attention`; L padded length
of the flat row, S blocks of `_BLOCK` tokens.

Source: FlexAttention (arXiv 2412.05496); its kernels come with PyTorch. Without a GPU PyTorch
computes the same with all scores in memory, and no gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import PreTrainedModel

from pettingllms_trainers.backends.hf.attention import UnsupportedModel
from pettingllms_trainers.errors import ConfigError, reason_of

PackedAttention = Literal["auto", "flex", "padded"]
"""See `OptimizerConfig.packed_attention`."""

_BLOCK = 128
"""Tokens of a block: what the kernels of PyTorch are made for."""

_MIN_HEAD_SIZE = 16
"""Smallest head that Triton's matrix products take."""

_MAX_KERNELS = 64
"""One for each padded length, with and without gradient, and each kind of head."""


def uses_flex(model: PreTrainedModel, kind: PackedAttention) -> bool:
    """Whether packed completions attend by FlexAttention.

    Args:
        model: On its device.
        kind: What is wanted; auto: FlexAttention on a GPU, for heads that it knows.

    Raises:
        ConfigError: It is wanted and cannot be used.
    """
    if kind == "padded":
        return False
    config: Any = model.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    has_gpu, fits = model.device.type == "cuda", size >= _MIN_HEAD_SIZE
    if kind == "flex" and not (has_gpu and fits):
        reason = f"the model's heads have {size}" if has_gpu else f"it is on {model.device.type!r}"
        raise ConfigError(
            'optimizer.packed_attention = "flex" needs a model on a GPU, with heads of '
            f'{_MIN_HEAD_SIZE} or more numbers; {reason}. Use "auto" or "padded"'
        )
    return has_gpu and fits


class FlexLayout:
    """The same tokens see the same as in `PackedLayout`, which has the same arguments."""

    def __init__(
        self,
        prompt_lengths: Sequence[int],
        completion_lengths: Sequence[int],
        owners: Sequence[int],
        device: torch.device,
    ) -> None:
        lengths = np.array([*prompt_lengths, *completion_lengths])
        num_prompts, self._num_tokens = len(prompt_lengths), int(lengths.sum())
        self._length = padded_length(self._num_tokens)
        # Lengths are rounded up: a kernel is compiled for each, in tens of seconds.
        padding = self._length - self._num_tokens
        # Every token has the number of its sequence, and that of the prompt which it sees beside
        # it: prompts see themselves. Each token of the padding is a sequence of its own.
        seen = np.array([*range(num_prompts), *owners])
        firsts = np.where(seen == np.arange(len(seen)), 0, lengths[seen])  # positions
        ends = lengths.cumsum()
        starts = ends - lengths
        positions = np.arange(self._num_tokens) - np.repeat(starts - firsts, lengths)

        def spread(values: NDArray[Any], of_padding: NDArray[Any]) -> Tensor:
            padded = np.append(values, of_padding)
            return torch.from_numpy(padded.astype(np.int32)).to(device)

        others = np.arange(len(lengths), len(lengths) + padding)
        self._sequences = spread(np.repeat(np.arange(len(lengths)), lengths), others)
        self._prompts = spread(np.repeat(seen, lengths), others)
        self._positions = spread(positions, np.zeros(padding))
        prompts = list(zip(starts[:num_prompts], ends[:num_prompts], strict=True))
        completions = list(zip(starts[num_prompts:], ends[num_prompts:], strict=True))
        self._seen, self._filled = _blocks(self._length // _BLOCK, prompts, completions, owners)
        self._masks: dict[int | None, BlockMask] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None
    ) -> Tensor:
        """See `TokenLayout.attend`.

        Raises:
            UnsupportedModel: The kernel cannot be compiled for this model.
        """
        kind = query.device.type
        # Layers may give float32 queries with bfloat16 values to a kernel that casts them.
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else value.dtype
        output = _attend(
            # A kernel is compiled for one length; `padded_length` keeps their number small.
            self._padded(query.to(dtype)),
            self._padded(key.to(dtype)),
            self._padded(value.to(dtype)),
            self.mask(window),
        )
        return output[0].transpose(0, 1)[: self._num_tokens]

    def _padded(self, items: Tensor) -> Tensor:
        """``[1, H, L, D]`` of ``[N, H, D]``."""
        rows = items.new_zeros(self._length, *items.shape[1:])
        return torch.cat([items, rows[self._num_tokens :]]).transpose(0, 1)[None]

    def mask(self, window: int | None) -> BlockMask:
        """Who sees whom, for layers with a window of positions or None."""
        if window not in self._masks:
            sequences, prompts, positions = self._sequences, self._prompts, self._positions

            def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
                is_own = sequences[query] == sequences[key]
                is_prompt = prompts[query] == sequences[key]
                distance = positions[query] - positions[key]
                is_near = distance >= 0
                if window is not None:
                    is_near = is_near & (distance < window)
                return (is_own | is_prompt) & is_near

            # Of a block that is seen in full the kernel asks `sees` nothing.
            filled = self._filled if window is None else np.zeros_like(self._filled)
            device = sequences.device
            self._masks[window] = BlockMask.from_kv_blocks(
                *_ordered(self._seen & ~filled, device),
                *_ordered(filled, device),
                BLOCK_SIZE=_BLOCK,
                mask_mod=sees,
            )
        return self._masks[window]


def padded_length(num_tokens: int) -> int:
    """The length of a flat row: few different ones, so that few kernels are compiled.

    The tokens that are added are seen by none and cost nothing but their place.
    """
    blocks = -(-num_tokens // _BLOCK)
    power = 1 << (blocks - 1).bit_length()
    return _BLOCK * (power * 3 // 4 if power >= 4 and blocks <= power * 3 // 4 else power)


_Span = tuple[int, int]
"""First token, and the one after the last."""


def _blocks(
    num_blocks: int,
    prompts: Sequence[_Span],
    completions: Sequence[_Span],
    owners: Sequence[int],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """``[S, S]`` twice: where a query block sees a part of a key block, and all of it."""
    seen = np.eye(num_blocks, dtype=bool)
    filled = np.zeros_like(seen)
    for span in (*prompts, *completions):
        touched, inside = _touched(span), _inside(span)
        seen[touched, touched] |= np.tri(touched.stop - touched.start, dtype=bool)
        filled[inside, inside] |= np.tri(inside.stop - inside.start, k=-1, dtype=bool)
    # Completions of a prompt are neighbours: their queries see its keys as one.
    # Taken as one span, their blocks are filled where those of single completions are not.
    siblings: dict[int, _Span] = {}
    for (start, end), owner in zip(completions, owners, strict=True):
        first, last = siblings.get(owner, (start, start))
        if last != start:
            raise ValueError("completions of one prompt must follow each other")
        siblings[owner] = (first, end)
    # All of a prompt lies before its completions, so a block of both is seen in full or not at all.
    for owner, span in siblings.items():
        seen[_touched(span), _touched(prompts[owner])] = True
        filled[_inside(span), _inside(prompts[owner])] = True
    return seen, filled


def _touched(span: _Span) -> slice:
    """The blocks that have a token of these."""
    return slice(span[0] // _BLOCK, (span[1] - 1) // _BLOCK + 1)


def _inside(span: _Span) -> slice:
    """The blocks that have only tokens of these."""
    first = -(-span[0] // _BLOCK)
    return slice(first, max(first, span[1] // _BLOCK))


def _ordered(blocks: NDArray[np.bool_], device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers of key blocks ``[1, 1, S]``, and the blocks first ``[1, 1, S, S]``."""
    counts = torch.from_numpy(blocks.sum(-1, dtype=np.int32))
    order = torch.from_numpy(np.argsort(~blocks, -1, kind="stable").astype(np.int32))
    return counts[None, None].to(device), order[None, None].to(device)


@functools.cache
def _compiled() -> Any:
    # Static shapes: few, thanks to `padded_length`. Never without compiling: that keeps all scores.
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask) -> Tensor:
    """``[1, H, L, D]`` of the same and keys and values ``[1, J, L, D]``."""
    options: dict[str, Any] = {
        "block_mask": mask,
        "scale": 1.0,
        "enable_gqa": query.shape[1] != key.shape[1],
    }
    if not query.is_cuda:
        return flex_attention(query, key, value, **options)  # pyright: ignore[reportReturnType, reportDeprecated]
    dynamo = import_module("torch._dynamo")  # slow, and only for GPUs
    try:
        with dynamo.config.patch(recompile_limit=_MAX_KERNELS):
            return _compiled()(query, key, value, **options)
    except (dynamo.exc.TorchDynamoException, NotImplementedError) as error:
        raise UnsupportedModel(
            f"FlexAttention cannot be compiled for it ({reason_of(error)}); set "
            'optimizer.packed_attention = "padded"'
        ) from error
