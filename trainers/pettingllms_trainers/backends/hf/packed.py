"""Who sees whom while training: prompts once, then their completions. Legend: see `attention`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pettingllms_trainers.backends.hf.attention import (
    Ragged,
    SeenKeys,
    causal_attention,
    grouped_attention,
    split_attention,
)

__all__ = ["PackedLayout"]

_SPLIT_LENGTH = 6
"""Completions up to this many tokens attend prompt and themselves apart; measured on a CPU: for few
queries the copies of the prompt's keys cost most, for many the scores that the split keeps."""

_CHUNK = 64
"""Tokens of each completion that attend at once on a CPU; measured."""


class PackedLayout:
    """All prompts one after the other, then all completions; these see their prompt and themselves.

    Args:
        prompt_lengths: ``[B]``, all at least 1.
        completion_lengths: ``[C]``, all at least 1; may be empty.
        owners: ``[C]`` index of the prompt of each completion.
        device: Device of the model.
    """

    def __init__(
        self,
        prompt_lengths: Sequence[int],
        completion_lengths: Sequence[int],
        owners: Sequence[int],
        device: torch.device,
    ) -> None:
        self.prompts = Ragged(prompt_lengths, device)
        self.completions = Ragged(completion_lengths, device) if completion_lengths else None
        self._owners = torch.tensor(owners, dtype=torch.long, device=device)
        if owners:
            used, counts = self._owners.unique_consecutive(return_counts=True)
            self._used, self._siblings = used, Ragged(counts.tolist(), device)
        self._masks: dict[int | None, Tensor] = {}
        self._addends: dict[tuple[int | None, torch.dtype], Tensor] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None
    ) -> Tensor:
        """See `TokenLayout.attend`."""
        # The flat row is [prompt tokens | completion tokens]; they attend differently.
        prompts, completions, split = self.prompts, self.completions, self.prompts.total
        keys, values = prompts.pad(key[:split]), prompts.pad(value[:split])
        seen = prompts.unpad(causal_attention(prompts.pad(query[:split]), keys, values, window))
        if completions is None:
            return seen
        own_keys, own_values = completions.pad(key[split:]), completions.pad(value[split:])
        own_query = completions.pad(query[split:])
        if completions.length <= _SPLIT_LENGTH:
            mask = self._mask(completions, window)
            output = self._split(own_query, own_keys, own_values, keys, values, mask)
        else:
            added = self._added(completions, window, query.dtype)
            output = self._copied(own_query, own_keys, own_values, keys, values, added)
        return torch.cat([seen, completions.unpad(output)])

    def _copied(
        self,
        query: Tensor,
        own_keys: Tensor,
        own_values: Tensor,
        prompt_keys: Tensor,
        prompt_values: Tensor,
        added: Tensor,
    ) -> Tensor:
        """Return ``[C, T, H, D]`` with a copy of the prompt's keys for each completion."""
        keys = torch.cat([prompt_keys[self._owners], own_keys], 1)  # [C, P + T, J, D]
        values = torch.cat([prompt_values[self._owners], own_values], 1)
        length, prompt_length = query.shape[1], prompt_keys.shape[1]
        size = _CHUNK if query.is_cpu else length
        outputs: list[Tensor] = []
        for start in range(0, length, size):
            chunk, seen = slice(start, start + size), prompt_length + start + size
            # Later keys are hidden from the whole chunk; PyTorch would compute their scores.
            outputs.append(
                grouped_attention(
                    query[:, chunk], keys[:, :seen], values[:, :seen], added[:, :, chunk, :seen]
                )
            )
        return torch.cat(outputs, 1)

    def _split(
        self,
        query: Tensor,
        own_keys: Tensor,
        own_values: Tensor,
        prompt_keys: Tensor,
        prompt_values: Tensor,
        mask: Tensor,
    ) -> Tensor:
        """Return ``[C, T, H, D]``: prompt and own part apart, as in decoding; no prompt copies."""
        heads = own_keys.shape[2]
        hidden = ~mask[:, :, :, None]  # [C, 1, T, 1, P + T]
        prompt_hidden, own_hidden = hidden.split([self.prompts.length, query.shape[1]], -1)
        query = query.unflatten(2, (heads, -1)).transpose(1, 2)  # [C, J, T, G, D]
        own = SeenKeys(own_keys.transpose(1, 2), own_values.transpose(1, 2), own_hidden)
        prompts = SeenKeys(
            prompt_keys[self._used].transpose(1, 2),
            prompt_values[self._used].transpose(1, 2),
            self._siblings.pad(prompt_hidden).transpose(1, 2),
        )
        output = split_attention(query, own, prompts, self._siblings)
        return output.transpose(1, 2).flatten(2, 3)

    def _added(self, completions: Ragged, window: int | None, dtype: torch.dtype) -> Tensor:
        """Return the mask as what is added to scores: PyTorch would make that in every layer."""
        if (window, dtype) not in self._addends:
            hidden = ~self._mask(completions, window)
            zeros = torch.zeros_like(hidden, dtype=dtype)
            self._addends[window, dtype] = zeros.masked_fill_(hidden, -torch.inf)
        return self._addends[window, dtype]

    def _mask(self, completions: Ragged, window: int | None) -> Tensor:
        """Return ``[C, 1, T, P + T]``: True where a completion token sees a prompt or own token."""
        if window not in self._masks:
            # Prompts are padded on the right, so the distance of a completion token from a prompt
            # token is counted from the true end of the prompt, not from its padded one.
            lengths = self.prompts.lengths[self._owners][:, None, None]  # [C, 1, 1]
            slots = torch.arange(completions.length, device=self._owners.device)
            prompt_slots = torch.arange(self.prompts.length, device=self._owners.device)
            from_prompt = lengths + slots[:, None] - prompt_slots  # [C, T, P] distances
            from_own = (slots[:, None] - slots).expand(len(lengths), -1, -1)  # [C, T, T]
            see_prompt = (prompt_slots < lengths).expand_as(from_prompt)
            see_own = from_own >= 0
            if window is not None:
                see_prompt = see_prompt & (from_prompt < window)
                see_own = see_own & (from_own < window)
            self._masks[window] = torch.cat([see_prompt, see_own], -1)[:, None]
        return self._masks[window]
