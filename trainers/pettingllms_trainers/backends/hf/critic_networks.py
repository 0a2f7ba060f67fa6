"""Networks of V: a head on a policy's hidden states, or a small transformer of its own.

Legend: B prompts, D hidden size of the policy, W width of V, L longest prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["HeadOfPolicy", "OwnModel"]

_NUM_LAYERS = 2
_NUM_HEADS = 4


class HeadOfPolicy(nn.Module):
    """Hidden states at the ends of prompts to V: normalised, one hidden layer; 0 before training.

    Args:
        hidden_size: D.
        width: W.
    """

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(hidden_size), nn.Linear(hidden_size, width), nn.GELU()
        )
        self.output = _zero_output(width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return ``[B]`` from ``[B, D]``."""
        return self.output(self.layers(hidden)).squeeze(-1)


class OwnModel(nn.Module):
    """Token ids of prompts to V by a causal-free transformer, read at the mean of its outputs.

    Args:
        vocab_size: Of the policy.
        width: W, a multiple of 4.
    """

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        layer = nn.TransformerEncoderLayer(
            width, _NUM_HEADS, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, _NUM_LAYERS, enable_nested_tensor=False)
        self.output = _zero_output(width)

    def forward(self, prompts: Sequence[Tensor]) -> Tensor:
        """Return ``[B]`` from token ids of different lengths."""
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=prompts[0].device)
        ids = nn.utils.rnn.pad_sequence(list(prompts), batch_first=True)  # [B, L]
        is_token = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]  # [B, L]
        embedded = self.embedding(ids)
        states = embedded + _positions(ids.shape[1], embedded.shape[-1], ids.device)
        states = self.encoder(states, src_key_padding_mask=~is_token)  # [B, L, W]
        mean = (states * is_token[..., None]).sum(1) / lengths[:, None]
        return self.output(mean).squeeze(-1)


def _zero_output(width: int) -> nn.Linear:
    output = nn.Linear(width, 1)
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
    return output


def _positions(length: int, width: int, device: torch.device) -> Tensor:
    """Return sinusoids ``[L, W]`` (arXiv 1706.03762, section 3.5): prompts may have any length."""
    rates = torch.exp(
        torch.arange(0, width, 2, device=device) * (-math.log(10_000.0) / width)
    )  # [W / 2]
    angles = torch.arange(length, device=device)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)
