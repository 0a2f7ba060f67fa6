"""Two ways to run a causal LM token by token: with shared prompts, and the plain one.

Legend: N rows, B prompts, L longest prompt, V vocabulary; see `attention`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pettingllms_trainers.backends.hf.attention import UnsupportedModel, flat_forward
from pettingllms_trainers.backends.hf.layouts import DecodeLayout, PrefillLayout

__all__ = ["Decoder", "ExpandedDecoder", "SharedPrefixDecoder"]


class Decoder(Protocol):
    """A model with the state of N completions that are being written."""

    device: torch.device
    """Where it computes."""
    can_join: bool
    """Whether rows may be added while others are being written."""
    shares_prompts: bool
    """Whether the candidates of a request hold one copy of its prompt, or one each."""

    def prefill(self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int]) -> Tensor:
        """Append `counts[b]` rows for prompt b and return their next-token logits ``[n, V]``."""
        ...

    def step(self, token_ids: Tensor) -> Tensor:
        """Append one token to each row, ``[N]``, and return the next-token logits ``[N, V]``."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (ascending indices)."""
        ...


def _last_position(model: PreTrainedModel) -> int:
    """Return the last position that the model knows; a number never reached if it has no limit."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return sys.maxsize if context is None else context - 1


def _repeats(counts: Sequence[int], device: torch.device) -> Tensor:
    """Return the prompt index of each row ``[sum(counts)]``."""
    return torch.repeat_interleave(torch.tensor(counts, device=device))


class SharedPrefixDecoder:
    """Computes each prompt once; all its candidates attend the same keys and values.

    Args:
        model: Prepared by `attention.use_layouts`.
    """

    can_join = True
    shares_prompts = True

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.device = model.device
        # Once: to look it up takes as long as the norms of three layers.
        self._last_position = _last_position(model)
        self._layout = DecodeLayout(self.device)
        self._positions = torch.zeros(0, dtype=torch.long, device=self.device)

    def prefill(self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int]) -> Tensor:
        """See `Decoder.prefill`. Equal prompts that follow each other are computed once."""
        pairs = zip(prompts, counts, strict=True)
        merged = [
            (prompt, sum(count for _, count in same))
            for prompt, same in itertools.groupby(pairs, key=lambda pair: pair[0])
        ]
        prompts, counts = [prompt for prompt, _ in merged], [count for _, count in merged]
        prefill = PrefillLayout([len(prompt) for prompt in prompts], self.device)
        tokens = torch.tensor([token for prompt in prompts for token in prompt])
        positions = torch.cat([torch.arange(len(prompt)) for prompt in prompts])
        lengths = prefill.rows.lengths
        tokens, positions = tokens.to(self.device), positions.to(self.device)
        logits = flat_forward(self._model, tokens, positions, prefill, lengths.cumsum(0) - 1)
        self._layout.add(prefill, counts)
        owners = _repeats(counts, self.device)
        self._positions = torch.cat([self._positions, lengths[owners]])
        return logits[owners]

    def step(self, token_ids: Tensor) -> Tensor:
        """See `Decoder.step`."""
        self._layout.advance()
        logits = flat_forward(self._model, token_ids, self._positions, self._layout, None)
        # Rows that are finished but still there stay in the context.
        self._positions = (self._positions + 1).clamp_(max=self._last_position)
        return logits

    def keep(self, rows: Tensor) -> None:
        """See `Decoder.keep`."""
        self._layout.keep(rows)
        self._positions = self._positions[rows]


class ExpandedDecoder:
    """Plain decoding with the cache of `transformers`, the prompt's part copied for each candidate.

    Works for every causal LM that keeps its past in ``past_key_values``. Rows cannot join later.

    Args:
        model: Any causal LM.
    """

    can_join = False
    shares_prompts = False

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.device = model.device
        # Once: to look it up takes as long as the norms of three layers.
        self._last_position = _last_position(model)
        self._cache: Any = None
        self._mask = torch.zeros(0)
        self._positions = torch.zeros(0)

    def prefill(self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int]) -> Tensor:
        """See `Decoder.prefill`."""
        length = max(len(prompt) for prompt in prompts)
        tokens = torch.tensor([(0,) * (length - len(prompt)) + prompt for prompt in prompts])
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        mask = (torch.arange(length, device=self.device) >= length - lengths[:, None]).long()
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        output = self._model(
            input_ids=tokens.to(self.device),
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
        )
        owners = _repeats(counts, self.device)
        self._cache = getattr(output, "past_key_values", None)
        if not hasattr(self._cache, "reorder_cache"):
            raise UnsupportedModel("it returns no past_key_values")
        # Not `batch_select_indices`: states of linear attention have the selection of beams only.
        self._cache.reorder_cache(owners)
        self._mask, self._positions = mask[owners], lengths[owners]
        return output.logits[:, -1][owners]

    def step(self, token_ids: Tensor) -> Tensor:
        """See `Decoder.step`."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(token_ids), 1)], 1)
        output = self._model(
            input_ids=token_ids[:, None],
            attention_mask=self._mask,
            position_ids=self._positions[:, None],
            past_key_values=self._cache,
            use_cache=True,
        )
        # Rows that are finished but still there stay in the context.
        self._positions = (self._positions + 1).clamp_(max=self._last_position)
        return output.logits[:, -1]

    def keep(self, rows: Tensor) -> None:
        """See `Decoder.keep`."""
        self._cache.reorder_cache(rows)
        self._mask, self._positions = self._mask[rows], self._positions[rows]
