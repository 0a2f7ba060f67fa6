"""A model in memory with its tokenizer: what generates, learns and is saved."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pettingllms_trainers.backends.hf.adapters import Adapter, AdapterBase, load_model
from pettingllms_trainers.backends.hf.chat import read_chat
from pettingllms_trainers.config.sections import base_of_adapter
from pettingllms_trainers.learning.batch import Targets
from pettingllms_trainers.learning.loss import TokenStatistics, token_statistics
from pettingllms_trainers.types import RequestLimits


@dataclass(frozen=True, eq=False, slots=True)
class LoadedModel:
    """A causal language model, or one adapter of a base that several policies share."""

    model: PreTrainedModel
    """Decoder-only, on its device; that of the base where there is an adapter."""
    tokenizer: PreTrainedTokenizerBase
    """Its tokenizer."""
    adapter: Adapter | None = None
    """None when all weights are the model's own."""
    stored: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How it reads and writes; see `read_chat`."""

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        precision: str,
        is_trained: bool,
        device: str | torch.device | None = "cpu",
    ) -> LoadedModel:
        """Load a Hugging Face directory or hub name, or a directory with an adapter.

        Args:
            path: Directory or hub name.
            precision: ``float32`` or ``bfloat16``, also of weights that are not trained.
            is_trained: Whether a model's own weights are, so that they stay in float32; an
                adapter's always do.
            device: Torch device; None: where it is loaded.

        Raises:
            OSError: It cannot be loaded.
            InvalidArgument: It is an adapter that cannot be used.
        """
        source = base_of_adapter(path)
        # An adapter alone is not a model: its file names the base.
        if source is not None:
            base = AdapterBase.from_pretrained(source, precision=precision, device=device or "cpu")
            return cls.of_adapter(base.read(Path(path).name, Path(path)), path)
        dtype = torch.bfloat16 if precision == "bfloat16" and not is_trained else torch.float32
        model, tokenizer = load_model(path, dtype, device), AutoTokenizer.from_pretrained(path)
        return cls(model, tokenizer, stored=read_chat(path))

    @classmethod
    def of_adapter(cls, adapter: Adapter, path: str | Path | None = None) -> LoadedModel:
        """An adapter with the model of its base.

        Args:
            adapter: The adapter.
            path: What it, or the base for a new one, was read from; None: from nowhere.
        """
        stored = {} if path is None else read_chat(path)
        return cls(adapter.base.model, adapter.tokenizer, adapter, stored)

    def active(self) -> contextlib.AbstractContextManager[None]:
        """The context in which the model computes with this adapter, if there is one."""
        return contextlib.nullcontext() if self.adapter is None else self.adapter.active()

    def limits(self, max_batch_tokens: int) -> RequestLimits:
        """What a request is compared with."""
        config = self.model.config.get_text_config()
        return RequestLimits(
            max_batch_tokens=max_batch_tokens,
            context_length=getattr(config, "max_position_embeddings", None),
            vocab_size=config.vocab_size,
        )

    @property
    def stop_ids(self) -> frozenset[int]:
        """Token ids that end a completion: of the generation settings and the tokenizer."""
        settings = getattr(self.model, "generation_config", None)
        # Either may be one id or several, and chat models often name different ones.
        found: list[Any] = []
        for ids in (getattr(settings, "eos_token_id", None), self.tokenizer.eos_token_id):
            found += ids if isinstance(ids, list) else [ids]
        return frozenset(int(token) for token in found if token is not None)


MAX_LOGITS = 1 << 26
"""Logits that are in memory at once while learning; fewer are not worth computing twice."""


def use_float32_head(model: PreTrainedModel) -> None:
    """Make the output layer compute in float32: rounding logits to bfloat16 costs 0.01 nats."""
    head = model.get_output_embeddings()
    # Other kinds of heads have their own arithmetic, which is left alone.
    if isinstance(head, torch.nn.Linear):
        patched: Any = head
        patched.forward = functools.partial(_float32_logits, head, {})


def _float32_logits(
    head: torch.nn.Linear, kept: dict[tuple[int, int], Tensor], hidden: Tensor
) -> Tensor:
    with torch.autocast(hidden.device.type, enabled=False):
        bias = cast("Tensor | None", head.bias)  # torch's stub knows no head without one
        weight = head.weight
        if not (hidden.is_cuda or weight.requires_grad or bias is not None):
            # On a CPU the cast takes as long as the product of 50 rows, and frozen weights stay.
            place = (weight.data_ptr(), weight._version)
            if place not in kept:
                kept.clear()
                kept[place] = weight.float()
            return F.linear(hidden.float(), kept[place])
        # Casting both first would keep a float32 copy of the weights for the backward pass.
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
        # The weights and hidden states are exact in TF32; only the gradient is rounded.
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


@contextlib.contextmanager
def bare_output(model: PreTrainedModel) -> Generator[Any]:
    """Make the model return hidden states ``[..., D]`` in place of logits; gives the head."""
    head: Any = model.get_output_embeddings()
    own = head.__dict__.get("forward")
    compute = head.forward
    head.forward = lambda hidden: hidden
    try:
        yield compute
    finally:
        del head.forward
        if own is not None:
            head.forward = own


@torch.no_grad()
def is_head_last(model: PreTrainedModel) -> bool:
    """Whether logits are what the head makes of hidden states, and nothing comes after.

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
    """The statistics of all targets, with at most `MAX_LOGITS` logits in memory.

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
    # Computed twice only where the logits do not fit at once.
    if len(parts) == 1:
        return _statistics(head, *parts[0])
    found: list[TokenStatistics] = [
        checkpoint(_statistics, head, *part, use_reentrant=False) for part in parts
    ]
    return TokenStatistics(*(torch.cat(column) for column in zip(*found, strict=True)))


def _statistics(head: Any, hidden: Tensor, *targets: Any) -> TokenStatistics:
    return token_statistics(head(hidden), *targets)


_MIN_PRODUCTS = 1 << 21
"""Multiplications from which oneDNN is faster, with the cost of its call; measured."""


def use_onednn(model: nn.Module) -> None:
    """Make the linear layers of a model compute by oneDNN where that pays.

    Does nothing on other devices, in other arithmetic than float32 and on CPUs without AVX-512.
    """
    if not _pays():
        return
    for module in model.modules():
        # Exactly this class: subclasses, such as quantised layers, compute otherwise.
        if type(module) is nn.Linear and module.weight.device.type == "cpu":
            patched: Any = module
            patched.forward = functools.partial(_forward, module)


@functools.cache
def _pays() -> bool:
    has_product = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return has_product and torch.backends.cpu.get_cpu_capability() == "AVX512"


def _forward(layer: nn.Linear, inputs: Tensor) -> Tensor:
    weight, bias = layer.weight, layer.bias
    # By sizes alone, so that equal inputs take the same way in every run.
    is_small = inputs.numel() * weight.shape[0] < _MIN_PRODUCTS
    is_other = not (inputs.dtype == weight.dtype == torch.float32 and inputs.device.type == "cpu")
    if is_small or is_other or torch.is_autocast_enabled("cpu"):
        return F.linear(inputs, weight, bias)
    if torch.is_grad_enabled() and (inputs.requires_grad or weight.requires_grad):
        found: Any = _Linear.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
        return found
    return _product(inputs, weight, bias)


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """What `F.linear` does: ``[..., I]`` times ``[O, I]`` is ``[..., O]``."""
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    """The product with the three products of its gradient."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _product(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients  # [..., O]
        inputs, weight = ctx.saved_tensors
        wants_inputs, wants_weight, wants_bias = ctx.needs_input_grad
        flat = gradient.flatten(0, -2)  # [M, O]
        return (
            _product(gradient, weight.t()) if wants_inputs else None,
            _product(flat.t(), inputs.flatten(0, -2).t()) if wants_weight else None,
            flat.sum(0) if wants_bias else None,
        )


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""


def keep_freed_memory() -> None:
    """Make this process keep memory that was freed; does nothing without glibc.

    The process then holds what it needed at most, until it ends. A variable such as
    ``MALLOC_TRIM_THRESHOLD_`` would do the same, but only if it were set before the process starts.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, -1)  # never
        mallopt(_MMAP_THRESHOLD, 1 << 30)  # blocks of a gigabyte and more are apart, as before
