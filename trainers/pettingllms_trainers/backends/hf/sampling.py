"""Next tokens from logits: one uniform number per row and step, inverted through the CDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pettingllms_trainers.types import GenerateRequest, SamplingSettings

__all__ = ["RowSampling", "SampledTokens", "uniforms"]

_MIN_LOGIT = -1e4
"""In place of -inf; exp of it is 0."""
_BLOCK = 64
"""Tokens that are summed up before the running sum."""


class SampledTokens(NamedTuple):
    """One token for each row."""

    token_ids: Tensor
    """``[N]``."""
    logprobs: Tensor
    """``[N]`` in the distribution that was sampled from."""
    entropies: Tensor
    """``[N]`` of that distribution, in nats."""


def uniforms(request: GenerateRequest) -> Tensor:
    """Return the draws of a request: ``[K, max_completion_tokens]`` numbers in [0, 1).

    They depend on the seed alone: what a request is batched with does not matter.
    """
    generator = np.random.default_rng(request.seed & (2**64 - 1))
    shape = (request.sampling.max_completion_tokens, request.num_candidates)
    return torch.from_numpy(generator.random(shape, dtype=np.float32)).T


class RowSampling:
    """Sampling settings of N rows, as tensors.

    Args:
        settings: ``[N]`` one for each row.
        device: Where the logits live.
    """

    def __init__(self, settings: Sequence[SamplingSettings], device: torch.device) -> None:
        temperatures = [setting.temperature or 1.0 for setting in settings]
        self._temperature = None
        if any(value != 1.0 for value in temperatures):
            self._temperature = torch.tensor(temperatures, device=device)[:, None]
        self._is_greedy = None
        if any(setting.temperature == 0 for setting in settings):
            self._is_greedy = torch.tensor([s.temperature == 0 for s in settings], device=device)
        self._top_k = self._top_p = None
        if any(setting.top_k for setting in settings):
            self._top_k = torch.tensor([s.top_k for s in settings], device=device)[:, None]
        if any(setting.top_p < 1 for setting in settings):
            self._top_p = torch.tensor([s.top_p for s in settings], device=device)[:, None]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        for name in ("_temperature", "_is_greedy", "_top_k", "_top_p"):
            values: Tensor | None = getattr(self, name)
            if values is not None:
                setattr(self, name, values[rows])

    def sample(self, logits: Tensor, draws: Tensor) -> SampledTokens:
        """Return a token for each row.

        Greedy rows take the most probable token; log-probability and entropy are at temperature 1.

        Args:
            logits: ``[N, V]``, any floating dtype; -inf for tokens that are excluded.
            draws: ``[N]`` numbers in [0, 1).
        """
        logits = self._processed(logits.float())
        probabilities = logits.softmax(-1)
        tokens = _inverted(probabilities, draws[:, None])
        is_excluded = logits.gather(1, tokens).isneginf()
        if is_excluded.any():
            # A parallel sum may rise by a rounding error where a token is excluded.
            best = logits.argmax(-1, keepdim=True)
            tokens = torch.where(is_excluded, best, tokens)
        if self._is_greedy is not None:
            best = logits.argmax(-1, keepdim=True)
            tokens = torch.where(self._is_greedy[:, None], best, tokens)
        logprobs = probabilities.gather(1, tokens).log_()
        # H = log Z - sum(p * x), and log Z = x - log p of any token. Excluded tokens have p = 0 and
        # x = -inf, and their product must be 0.
        log_total = logits.gather(1, tokens) - logprobs
        moment = probabilities.mul_(logits.clamp(min=_MIN_LOGIT)).sum(-1, keepdim=True)
        entropies = log_total - moment
        return SampledTokens(tokens.squeeze(1), logprobs.squeeze(1), entropies.squeeze(1))

    def _processed(self, logits: Tensor) -> Tensor:
        """Return logits after temperature, then top-k, then top-p; excluded tokens have -inf."""
        if self._temperature is not None:
            logits = logits / self._temperature
        if self._top_k is None and self._top_p is None:
            return logits
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        excluded = torch.zeros_like(ordered, dtype=torch.bool)
        if self._top_k is not None:
            ranks = torch.arange(logits.shape[1], device=logits.device)
            excluded |= (ranks >= self._top_k) & (self._top_k > 0)
            ordered = ordered.masked_fill(excluded, -torch.inf)
        if self._top_p is not None:
            probabilities = ordered.softmax(-1)
            before = probabilities.cumsum(-1) - probabilities
            excluded |= (before >= self._top_p) & (self._top_p < 1)
            excluded[:, 0] = False
        return logits.masked_fill(
            torch.zeros_like(excluded).scatter(1, order, excluded), -torch.inf
        )


def _inverted(probabilities: Tensor, draws: Tensor) -> Tensor:
    """Return the tokens ``[N, 1]`` at which the running sums of probabilities pass the draws.

    Blocks of tokens are summed first, and only the block that is hit is looked at token by token: a
    running sum over a whole vocabulary takes longer than all other passes over it.

    Args:
        probabilities: ``[N, V]``.
        draws: ``[N, 1]`` numbers in [0, 1).
    """
    size = probabilities.shape[1]
    if size % _BLOCK:
        probabilities = F.pad(probabilities, (0, -size % _BLOCK))
    blocks = probabilities.unflatten(1, (-1, _BLOCK))  # [N, V / 64, 64]
    sums = blocks.sum(-1).cumsum_(-1)
    target = draws * sums[:, -1:]
    block = _first_above(sums, target)
    before = F.pad(sums, (1, 0)).gather(1, block)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, _BLOCK)).squeeze(1).cumsum_(-1)
    return (block * _BLOCK + _first_above(inside, target - before)).clamp_(max=size - 1)


def _first_above(sums: Tensor, target: Tensor) -> Tensor:
    """Return the index of the first of the running sums ``[N, S]`` that is above ``[N, 1]``."""
    # right=True: an entry of probability 0 adds nothing to the sum, so it is never the first. The
    # minimum is for a target rounded to the total.
    target = torch.minimum(target, sums[:, -1:] * (1 - 2**-23))
    found = torch.searchsorted(sums, target, right=True)
    return found.clamp_(max=sums.shape[1] - 1)  # NaN finds none; its log-probability tells
