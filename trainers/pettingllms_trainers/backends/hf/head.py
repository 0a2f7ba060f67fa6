"""The output layer of a model: in float32 whatever the arithmetic, and in chunks while learning.

Logits are the largest tensors of an update: at 150,000 tokens of vocabulary those of 8,192 targets
take 5 GB in float32, and the loss keeps several such. Only the log-probabilities of the targets are
needed, so hidden states are kept instead, and logits are computed chunk by chunk, again in the
backward pass.

Legend: M target tokens, V vocabulary, D hidden size.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from pettingllms_trainers.learning.batch import Targets
from pettingllms_trainers.learning.loss import TokenStatistics, token_statistics

__all__ = ["bare_output", "chunked_statistics", "is_head_last", "use_float32_head"]

MAX_LOGITS = 1 << 26
"""Logits that are in memory at once while learning; fewer are not worth computing twice."""


def use_float32_head(model: PreTrainedModel) -> None:
    """Make the output layer compute in float32: rounding logits to bfloat16 costs 0.01 nats."""
    head = model.get_output_embeddings()
    if isinstance(head, torch.nn.Linear):
        patched: Any = head
        patched.forward = functools.partial(_float32_logits, head)


def _float32_logits(head: torch.nn.Linear, hidden: Tensor) -> Tensor:
    with torch.autocast(hidden.device.type, enabled=False):
        bias = cast("Tensor | None", head.bias)  # torch's stub knows no head without one
        if head.weight.dtype == hidden.dtype == torch.bfloat16 and bias is None:
            logits: Any = _HalfProduct.apply(hidden, head.weight)
            return logits
        in_float32 = None if bias is None else bias.float()
        return F.linear(hidden.float(), head.weight.float(), in_float32)


class _HalfProduct(torch.autograd.Function):
    """``hidden @ weight.T`` of numbers in bfloat16, in float32.

    Forward, a GPU's units for bfloat16 multiply them exactly and add in float32. Backward, the
    gradient of the logits is rounded to the 11 bits of TF32, and so off by 2**-11 at most; the
    weights are exact there, too. What comes out is rounded to the 8 bits of bfloat16 in any case.
    Plain float32 takes several times as long on a GPU, and keeps a copy of the weights.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        if not hidden.is_cuda:
            return F.linear(hidden.float(), weight.float())
        flat: Any = torch.mm(hidden.flatten(0, -2), weight.T, out_dtype=torch.float32)  # type: ignore[call-overload]
        return flat.unflatten(0, hidden.shape[:-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        hidden, weight = ctx.saved_tensors
        (gradient,) = gradients
        of_hidden = of_weight = None
        with _tf32():
            if ctx.needs_input_grad[0]:
                of_hidden = (gradient @ weight.float()).to(hidden.dtype)
            if ctx.needs_input_grad[1]:
                rows = gradient.flatten(0, -2).T
                of_weight = (rows @ hidden.flatten(0, -2).float()).to(weight.dtype)
        return of_hidden, of_weight


@contextlib.contextmanager
def _tf32() -> Generator[None]:
    """Let a GPU multiply in TF32; on a CPU numbers stay as they are."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if torch.cuda.is_initialized() else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _unchanged(hidden: Tensor) -> Tensor:
    return hidden


@contextlib.contextmanager
def bare_output(model: PreTrainedModel) -> Generator[Any]:
    """Make the model return hidden states ``[..., D]`` in place of logits; gives the head."""
    head: Any = model.get_output_embeddings()
    own = head.__dict__.get("forward")
    compute = head.forward
    head.forward = _unchanged
    try:
        yield compute
    finally:
        del head.forward
        if own is not None:
            head.forward = own


@torch.no_grad()
def is_head_last(model: PreTrainedModel) -> bool:
    """Return whether logits are what the head makes of hidden states, and nothing comes after.

    Some families cap or scale logits afterwards.
    """
    layer = model.get_output_embeddings()
    if not isinstance(layer, torch.nn.Linear):
        return False
    token_ids = torch.arange(3, device=model.device)[None]
    logits = model(input_ids=token_ids, use_cache=False).logits
    with bare_output(model) as head:
        hidden = model(input_ids=token_ids, use_cache=False).logits
    return hidden.shape[-1] == layer.in_features and torch.allclose(
        head(hidden).float(), logits.float(), rtol=1e-2, atol=1e-4
    )


def chunked_statistics(
    head: Any, hidden: Tensor, targets: Targets, size: int, masks: Tensor | None = None
) -> TokenStatistics:
    """Return the statistics of all targets, with at most `MAX_LOGITS` logits in memory.

    Args:
        head: Hidden states to logits; see `bare_output`.
        hidden: ``[M, D]``.
        targets: Of the micro-batch.
        size: V.
        masks: ``[M, W]``; see `token_statistics`.
    """
    rows = max(1, MAX_LOGITS // size)
    columns = (hidden, targets.token_ids, targets.temperatures, masks)
    parts: list[list[Any]] = [
        [None if column is None else column[start : start + rows] for column in columns]
        for start in range(0, len(hidden), rows)
    ]
    if len(parts) == 1:
        return _statistics(head, *parts[0])
    found: list[TokenStatistics] = [
        checkpoint(_statistics, head, *part, use_reentrant=False) for part in parts
    ]
    return TokenStatistics(*(torch.cat(column) for column in zip(*found, strict=True)))


def _statistics(head: Any, hidden: Tensor, *targets: Any) -> TokenStatistics:
    return token_statistics(head(hidden), *targets)
