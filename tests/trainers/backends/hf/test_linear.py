"""Linear layers by oneDNN: values and gradients of the ordinary ones up to rounding."""

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from pettingllms_trainers.backends.hf import model as linear

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
def test_frozen_weights_get_no_gradient_and_inputs_do(calls):
    layer, inputs = layers(bias=True)
    layer.requires_grad_(False)
    linear.use_onednn(layer)
    inputs.requires_grad_()
    layer(inputs).sum().backward()
    torch.testing.assert_close(inputs.grad, layer.weight.sum(0).expand_as(inputs))
    assert layer.weight.grad is None
    assert len(calls) == 2


@needs_onednn
def test_without_gradients_nothing_is_kept(calls):
    layer, inputs = layers(bias=False)
    expected = layer(inputs)
    linear.use_onednn(layer)
    with torch.no_grad():
        found = layer(inputs)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-5)


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


def test_a_cpu_that_gains_nothing_keeps_its_layers(monkeypatch):
    monkeypatch.setattr(linear, "_pays", lambda: False)
    layer = nn.Linear(128, 256)
    linear.use_onednn(layer)
    assert "forward" not in vars(layer)


def test_layers_can_be_copied_with_their_own_weights(calls):
    import copy

    layer, inputs = layers(bias=False)
    linear.use_onednn(layer)
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.weight.zero_()
        assert not other(inputs).any()
        assert layer(inputs).any()
