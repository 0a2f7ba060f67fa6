"""Masks of tokens that a grammar allows, as bits: a 32nd of the memory that logits take.

Legend: M target tokens, V vocabulary, W = ceil(V / 32).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["masked"]


def masked(logits: Tensor, masks: Tensor) -> Tensor:
    """Return logits with -inf in place of those of excluded tokens.

    Args:
        logits: ``[M, V]``.
        masks: ``[M, W]`` int32; bit ``v % 32`` of word ``v // 32`` says whether token v is allowed,
            as in xgrammar and vLLM.
    """
    # Bytes, the lowest first, rather than words: what is unpacked takes a quarter of the logits.
    octets = masks.view(torch.uint8)[:, :, None]  # [M, 4 W, 1]
    bits = torch.arange(8, dtype=torch.uint8, device=masks.device)
    allowed = (octets >> bits & 1).bool().flatten(1)[:, : logits.shape[1]]
    return logits.masked_fill(~allowed, -torch.inf)
