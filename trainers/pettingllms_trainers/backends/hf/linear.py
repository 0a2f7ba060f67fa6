"""Linear layers on a CPU by oneDNN, which comes with PyTorch beside the library it uses by default.

MKL has AVX-512 products for Intel's CPUs only: on AMD's, oneDNN takes half the time. Its calls cost
more, so small products are left where they are. Which one computes depends on sizes alone: equal
inputs give equal bits.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["use_onednn"]

_MIN_PRODUCTS = 1 << 21
"""Multiplications from which oneDNN is faster, with the cost of its call; measured."""


def use_onednn(model: nn.Module) -> None:
    """Make the linear layers of a model compute by oneDNN where that pays.

    Does nothing on other devices, in other arithmetic than float32 and on CPUs without AVX-512.

    Args:
        model: Its layers get another `forward`; weights and configuration are left alone.
    """
    if not _pays():
        return
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.device.type == "cpu":
            patched: Any = module
            patched.forward = functools.partial(_forward, module)


@functools.cache
def _pays() -> bool:
    has_product = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return has_product and torch.backends.cpu.get_cpu_capability() == "AVX512"


def _forward(layer: nn.Linear, inputs: Tensor) -> Tensor:
    weight, bias = layer.weight, layer.bias
    is_small = inputs.numel() * weight.shape[0] < _MIN_PRODUCTS
    is_other = not (inputs.dtype == weight.dtype == torch.float32 and inputs.device.type == "cpu")
    if is_small or is_other or torch.is_autocast_enabled("cpu"):
        return F.linear(inputs, weight, bias)
    if torch.is_grad_enabled() and (inputs.requires_grad or weight.requires_grad):
        found: Any = _Linear.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
        return found
    return _product(inputs, weight, bias)


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return what `F.linear` does: ``[..., I]`` times ``[O, I]`` is ``[..., O]``."""
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
