"""The output layer computes in float32 whatever the arithmetic of the layers before it."""

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

from pettingllms_trainers.backends.hf.head import use_float32_head


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
