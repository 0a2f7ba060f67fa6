"""How a model computes: linear layers by oneDNN, the output layer in float32, freed memory."""

import copy
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from run_toys import program
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from pettingllms_trainers.backends.hf import model as linear
from pettingllms_trainers.backends.hf.model import use_float32_head

needs_onednn = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this PyTorch has no oneDNN"
)


@pytest.fixture
def calls(monkeypatch):
    """Pretend that oneDNN pays on this CPU; count its products."""
    found, product = [], linear._product

    def counted(*arguments):
        found.append(arguments[0].shape)
        return product(*arguments)

    monkeypatch.setattr(linear, "_pays", lambda: True)
    monkeypatch.setattr(linear, "_product", counted)
    return found


def layers(bias):
    torch.manual_seed(0)
    return nn.Linear(128, 256, bias=bias), torch.randn(2, 64, 128)


@needs_onednn
@pytest.mark.parametrize("bias", [False, True])
def test_value_and_gradients_are_those_of_the_ordinary_layer(calls, bias):
    layer, inputs = layers(bias)
    inputs.requires_grad_()
    weights = [inputs, *layer.parameters()]
    expected = layer(inputs)
    upstream = torch.randn_like(expected)
    expected_gradients = torch.autograd.grad(expected, weights, upstream)
    assert not calls
    linear.use_onednn(layer)
    found = layer(inputs)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(found, weights, upstream)
    assert len(calls) == 3
    for own, other in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


@needs_onednn
def test_only_the_gradients_that_are_wanted_are_computed(calls):
    layer, inputs = layers(bias=True)
    expected = layer(inputs).detach()
    layer.requires_grad_(False)
    linear.use_onednn(layer)
    found = layer(inputs)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    calls.clear()
    layer(inputs.requires_grad_()).sum().backward()
    torch.testing.assert_close(inputs.grad, layer.weight.sum(0).expand_as(inputs))
    assert layer.weight.grad is None
    assert len(calls) == 2


@pytest.mark.parametrize("case", ["small", "double", "bfloat16"])
def test_other_products_stay_where_they_are(calls, case):
    layer, inputs = layers(bias=False)
    if case == "small":
        inputs = inputs[:, :2]
    elif case == "double":
        layer, inputs = layer.double(), inputs.double()
    expected = layer(inputs)
    linear.use_onednn(layer)
    with torch.autocast("cpu", torch.bfloat16, enabled=case == "bfloat16"):
        found = layer(inputs)
    assert found.dtype == {"bfloat16": torch.bfloat16}.get(case, inputs.dtype)
    torch.testing.assert_close(found.to(expected.dtype), expected, rtol=2e-2, atol=2e-2)
    assert not calls


def test_layers_can_be_copied_with_their_own_weights(calls):
    layer, inputs = layers(bias=False)
    linear.use_onednn(layer)
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.weight.zero_()
        assert not other(inputs).any()
        assert layer(inputs).any()


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


def test_a_frozen_head_computes_with_the_weights_that_it_has():
    torch.manual_seed(0)
    model, hidden = Model(bias=False).bfloat16(), torch.randn(3, 7, 64).bfloat16()
    model.requires_grad_(False)
    use_float32_head(model)
    for _ in range(2):
        exact = F.linear(hidden.float(), model.head.weight.float())
        assert torch.equal(model.head(hidden), exact)
        assert torch.equal(model.head(hidden), exact), "what is kept is the same"
        with torch.no_grad():
            model.head.weight.mul_(2)


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


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_freed_memory_is_used_again():
    output = subprocess.check_output([sys.executable, "-c", program("pages")], text=True)
    before, after = map(int, output.split())
    assert after < before / 2
