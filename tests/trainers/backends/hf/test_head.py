"""The output layer computes in float32 whatever the arithmetic of the layers before it."""

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from pettingllms_trainers.backends.hf.model import use_float32_head


class Model(nn.Module):
    """A head on hidden states."""

    def __init__(self, bias):
        super().__init__()
        self.head = nn.Linear(64, 500, bias=bias)

    def get_output_embeddings(self):
        return self.head


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("has_half_weights", [False, True])
def test_logits_of_bfloat16_models_are_not_rounded(bias, has_half_weights):
    """With weights in bfloat16, and with weights in float32 that are cast on the way."""
    torch.manual_seed(0)
    model, hidden = Model(bias), torch.randn(3, 7, 64).bfloat16()
    if has_half_weights:
        model.bfloat16()
    weight = model.head.weight.float()
    exact = F.linear(hidden.float(), weight, model.head.bias.float() if bias else None)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model.head(hidden)
        use_float32_head(model)
        found = model.head(hidden)
    assert found.dtype == torch.float32
    assert torch.equal(found, exact)
    assert (rounded - exact).abs().max() > 1e-3


def in_tf32(values):
    """Round to the 11 significant bits that a GPU's TF32 has of float32, to even."""
    bits = values.view(torch.int32)
    half = (1 << 12) - 1 + ((bits >> 13) & 1)
    return ((bits + half) & ~((1 << 13) - 1)).view(torch.float32)


class Products(TorchDispatchMode):
    """Multiplies as a GPU would: in TF32 where that is allowed."""

    def __init__(self):
        super().__init__()
        self.allowed = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.mm.default and args[0].dtype == torch.float32:
            self.allowed.append(torch.get_float32_matmul_precision() == "high")
            if self.allowed[-1]:
                args = tuple(map(in_tf32, args))
        return func(*args, **(kwargs or {}))


def gradients(model, hidden, loss_of, products):
    hidden = hidden.detach().requires_grad_()
    model.zero_grad()
    with products:
        logits = model.head(hidden)
        loss_of(logits).backward()
    return logits.detach(), hidden.grad, model.head.weight.grad


def test_the_gradient_of_a_half_head_may_be_rounded_to_tf32_and_nothing_else(monkeypatch):
    """Weights and hidden states in bfloat16 are exact in TF32; gradients of logits are not."""
    torch.manual_seed(0)
    model, hidden = Model(bias=False).bfloat16(), torch.randn(40, 64).bfloat16()
    for exact in (hidden.float(), model.head.weight.detach().float()):
        assert torch.equal(in_tf32(exact), exact)
    use_float32_head(model)
    targets = torch.arange(40)
    loss_of = lambda logits: F.cross_entropy(logits, targets)  # noqa: E731
    plain = gradients(model, hidden, loss_of, Products())
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    products = Products()
    rounded = gradients(model, hidden, loss_of, products)
    assert products.allowed == [False, True, True], "forward exactly, then both gradients"
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.equal(rounded[0], plain[0])
    weight = model.head.weight.detach().float()
    of_logits = (plain[0].softmax(-1) - F.one_hot(targets, 500)) / 40
    bounds = (of_logits.abs() @ weight.abs(), of_logits.abs().T @ hidden.float().abs())
    for found, expected, bound in zip(rounded[1:], plain[1:], bounds, strict=True):
        # 2**-11 of TF32, and of bfloat16 2**-8 between neighbours.
        limit = 2**-11 * bound + 2**-7 * expected.float().abs()
        assert ((found.float() - expected.float()).abs() <= limit).all()
        assert torch.nn.functional.cosine_similarity(
            found.float().flatten(), expected.float().flatten(), 0
        ) > 1 - 1e-5  # fmt: skip


def test_the_gradient_of_a_half_head_is_that_of_the_plain_product():
    torch.manual_seed(0)
    model, hidden = Model(bias=False).bfloat16(), torch.randn(3, 7, 64).bfloat16()
    use_float32_head(model)
    weights = torch.randn(3, 7, 500)
    found = gradients(model, hidden, lambda logits: (logits * weights).sum(), Products())
    own, weight = hidden.clone().requires_grad_(), model.head.weight.detach().clone()
    weight.requires_grad_()
    (F.linear(own.float(), weight.float()) * weights).sum().backward()
    assert torch.equal(found[1], own.grad)
    assert torch.equal(found[2], weight.grad)
