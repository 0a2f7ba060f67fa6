"""Completions that attend in chunks get what they get at once."""

import pytest
import torch

from pettingllms_trainers.backends.hf import layouts
from pettingllms_trainers.backends.hf.layouts import PackedLayout

torch.set_num_threads(1)  # several at once are slower on models this small

PROMPTS, COMPLETIONS, OWNERS = [5, 3], [7, 20, 11], [0, 0, 1]
NUM_TOKENS = sum(PROMPTS) + sum(COMPLETIONS)


def attended(leaves, window):
    layout = PackedLayout(PROMPTS, COMPLETIONS, OWNERS, torch.device("cpu"))
    output = layout.attend(0, *leaves, window)
    return output, torch.autograd.grad(output.square().sum(), leaves)


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("chunk", [1, 8, 19])
def test_chunks_of_queries_change_rounding_only(monkeypatch, chunk, window):
    generator = torch.Generator().manual_seed(3)
    leaves = [
        torch.randn(NUM_TOKENS, heads, 8, generator=generator, dtype=torch.float64)
        for heads in (4, 2, 2)
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    monkeypatch.setattr(layouts, "_CHUNK", NUM_TOKENS)
    expected = attended(leaves, window)
    monkeypatch.setattr(layouts, "_CHUNK", chunk)
    torch.testing.assert_close(attended(leaves, window), expected)
