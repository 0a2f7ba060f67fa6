"""Who sees whom while generating: prompts alone, then one decoding step of many completions.

The candidates of a group share the keys and values of their prompt: those are computed once and
never copied per candidate. Legend: see `attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pettingllms_trainers.backends.hf.attention import (
    Ragged,
    SeenKeys,
    causal_attention,
    grouped_attention,
    split_attention,
)

_CAPACITY_STEP = 32
"""Slots that a cache has at first; later it doubles, so that the copies stay linear in time."""


class PrefillLayout:
    """Prompts one after the other; each token sees its own prompt up to itself. Keeps what it saw.

    Args:
        lengths: ``[B]`` prompt lengths, all at least 1.
        device: Device of the model.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.rows = Ragged(lengths, device)
        self.keys: dict[int, Tensor] = {}
        """Layer -> ``[B, J, P, D]``."""
        self.values: dict[int, Tensor] = {}
        """Layer -> ``[B, J, P, D]``."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None
    ) -> Tensor:
        keys, values = self.rows.pad(key), self.rows.pad(value)
        # Contiguous: every decoding step reads them whole, and the prefill writes them once.
        self.keys[layer] = keys.transpose(1, 2).contiguous()
        self.values[layer] = values.transpose(1, 2).contiguous()
        return self.rows.unpad(causal_attention(self.rows.pad(query), keys, values, window))


@dataclass(slots=True)
class _LayerCache:
    """Keys and values of one layer."""

    prompt_keys: Tensor
    """``[B, J, P, D]``, padded."""
    prompt_values: Tensor
    """``[B, J, P, D]``, padded."""
    keys: Tensor
    """``[N, J, capacity, D]``: slot s has the token that the row wrote in step s of the batch."""
    values: Tensor
    """``[N, J, capacity, D]``: the same slots."""


class DecodeLayout:
    """One new token for each of N live completions; rows join and leave between steps.

    All rows write to the same slot, `cursor`: one slice assignment per layer instead of a scatter.
    The price is that a row that joined late has slots before its start which it must not see.
    Prompts are kept once, in the order of their rows: the K rows of a prompt follow each other, so
    that queries are regrouped by padding (`Ragged`), and keys are never gathered.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.num_rows = 0
        self.cursor = -1
        """Slot that the present step writes."""
        self.starts = torch.zeros(0, dtype=torch.long, device=device)
        """``[N]`` first slot of each row."""
        self._counts: list[int] = []
        self._prompt_lengths: list[int] = []
        self._layers: dict[int, _LayerCache] = {}
        self._arrange()

    def add(self, prefill: PrefillLayout, counts: Sequence[int]) -> None:
        """Append `counts[b]` rows for each prompt b of a finished prefill."""
        num_new, lengths = sum(counts), prefill.rows.lengths.tolist()
        for layer, keys in prefill.keys.items():
            self._layers[layer] = self._joined(layer, keys, prefill.values[layer], num_new)
        self.starts = torch.cat([self.starts, self.starts.new_full((num_new,), self.cursor + 1)])
        self._counts += counts
        self._prompt_lengths += lengths
        self._arrange()

    def _joined(self, layer: int, keys: Tensor, values: Tensor, num_new: int) -> _LayerCache:
        old = self._layers.get(layer)
        # Dtype and heads are known from the first prefill only.
        if old is None:
            own = keys.new_zeros(num_new, keys.shape[1], _CAPACITY_STEP, keys.shape[3])
            own_values = values.new_zeros(*own.shape[:3], values.shape[3])
            return _LayerCache(keys, values, own, own_values)
        # Prompts are padded to the longest live one; `keep` shortens again when that is gone.
        length = max(keys.shape[2], old.prompt_keys.shape[2])
        own = old.keys.new_zeros(num_new, *old.keys.shape[1:])
        own_values = old.values.new_zeros(num_new, *old.values.shape[1:])
        return _LayerCache(
            torch.cat([_lengthened(old.prompt_keys, length), _lengthened(keys, length)]),
            torch.cat([_lengthened(old.prompt_values, length), _lengthened(values, length)]),
            torch.cat([old.keys, own]),
            torch.cat([old.values, own_values]),
        )

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (ascending indices), and the prompts and slots nobody needs."""
        owners = torch.repeat_interleave(torch.tensor(self._counts))  # [N]: prompt of each row
        counts = torch.bincount(owners[rows.cpu()], minlength=len(self._counts)).tolist()
        prompts = [index for index, count in enumerate(counts) if count]
        self._prompt_lengths = [self._prompt_lengths[index] for index in prompts]
        self._counts = [counts[index] for index in prompts]
        self.starts = self.starts[rows]
        # Slots before the oldest row that is left were written by rows that are gone.
        first = int(self.starts.min()) if len(rows) else self.cursor + 1
        length = max(self._prompt_lengths, default=0)
        index = torch.tensor(prompts, dtype=torch.long, device=self.device)
        for cache in self._layers.values():
            cache.prompt_keys = cache.prompt_keys[:, :, :length].index_select(0, index)
            cache.prompt_values = cache.prompt_values[:, :, :length].index_select(0, index)
            cache.keys = cache.keys[:, :, first:].index_select(0, rows)
            cache.values = cache.values[:, :, first:].index_select(0, rows)
        # Slots are cut off in front, so all that counts them moves with the cut.
        self.cursor -= first
        self.starts = self.starts - first
        # The next prefill starts anew; empty tensors would keep the old padding.
        if not len(rows):
            self._layers.clear()
        self._arrange()

    def advance(self) -> None:
        """Open the slot of the next step."""
        self.cursor += 1
        for cache in self._layers.values():
            if self.cursor >= cache.keys.shape[2]:
                capacity = max(2 * self.cursor, _CAPACITY_STEP)
                cache.keys = _lengthened(cache.keys, capacity)
                cache.values = _lengthened(cache.values, capacity)
        # Masks depend on the cursor; those of the last step are wrong.
        self._windows = {}

    def _arrange(self) -> None:
        """Recompute what depends on which rows are there."""
        self.num_rows = sum(self._counts)
        # By window: families alternate layers that see all with layers that see the last tokens.
        self._windows: dict[int | None, tuple[Tensor | None, Tensor | None]] = {}
        if self.num_rows:
            self._rows = Ragged(self._counts, self.device)
            # Both change only when rows join or leave, not in every step and layer.
            self._prompts = Ragged(self._prompt_lengths, self.device)
            self._aligned = not bool(self.starts.any())

    def _masks(self, window: int | None) -> tuple[Tensor | None, Tensor | None]:
        """Which prompt slots ``[B, 1, K, 1, P]``, own slots ``[N, 1, 1, T]`` are hidden."""
        if window not in self._windows:
            ages = self.cursor - torch.arange(self.cursor + 1, device=self.device)  # [T]
            own = None  # rows that all began together hide nothing
            if not self._aligned:
                own = (self.cursor - self.starts)[:, None] < ages
            prompt = None if self._prompts.is_regular else ~self._prompts.valid[:, None]
            if window is not None:
                hidden = (ages >= window)[None]
                own = hidden if own is None else own | hidden
                age = self._rows.pad(self.cursor - self.starts)[:, :, None]  # [B, K, 1]
                slots = torch.arange(self._prompts.length, device=self.device)
                far = age + self._prompts.lengths[:, None, None] - slots >= window
                prompt = far if prompt is None else prompt | far
            self._windows[window] = (
                None if prompt is None else prompt[:, None, :, None],
                None if own is None else own[:, None, None],
            )
        return self._windows[window]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None
    ) -> Tensor:
        cache = self._layers[layer]
        cache.keys[:, :, self.cursor] = key  # [N, J, D] into [N, J, T, D]
        cache.values[:, :, self.cursor] = value
        prompt_mask, own_mask = self._masks(window)
        num_keys, num_used = key.shape[1], self.cursor + 1
        own = SeenKeys(cache.keys[:, :, :num_used], cache.values[:, :, :num_used], own_mask)
        prompts = SeenKeys(cache.prompt_keys, cache.prompt_values, prompt_mask)
        query = query.unflatten(1, (num_keys, -1))  # [N, J, G, D]
        return split_attention(query, own, prompts, self._rows).flatten(1, 2)


def _lengthened(cache: Tensor, length: int) -> Tensor:
    """``[R, J, length, D]`` with zeros after what `cache` holds."""
    return F.pad(cache, (0, 0, 0, length - cache.shape[2]))


_SPLIT_LENGTH = 6
"""Completions up to this many tokens attend prompt and themselves apart; measured on a CPU: for few
queries the copies of the prompt's keys cost most, for many the scores that the split keeps."""

_CHUNK = 64
"""Tokens of each completion that attend at once on a CPU; measured."""


class _KeysValues(NamedTuple):
    """What queries attend, ``[R, S, J, D]`` each, padded."""

    keys: Tensor
    values: Tensor


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
            # A prompt may have no completion with an input token: those of one token have none.
            used, counts = self._owners.unique_consecutive(return_counts=True)
            self._used, self._siblings = used, Ragged(counts.tolist(), device)
        self._masks: dict[int | None, Tensor] = {}
        self._addends: dict[tuple[int | None, torch.dtype], Tensor] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None
    ) -> Tensor:
        # The flat row is [prompt tokens | completion tokens]; they attend differently.
        prompts, completions, split = self.prompts, self.completions, self.prompts.total
        shared = _KeysValues(prompts.pad(key[:split]), prompts.pad(value[:split]))
        seen = prompts.unpad(causal_attention(prompts.pad(query[:split]), *shared, window))
        if completions is None:
            return seen
        own = _KeysValues(completions.pad(key[split:]), completions.pad(value[split:]))
        own_query = completions.pad(query[split:])
        if completions.length <= _SPLIT_LENGTH:
            output = self._split(own_query, own, shared, self._mask(completions, window))
        else:
            added = self._added(completions, window, query.dtype)
            output = self._copied(own_query, own, shared, added)
        return torch.cat([seen, completions.unpad(output)])

    def _copied(
        self, query: Tensor, own: _KeysValues, prompts: _KeysValues, added: Tensor
    ) -> Tensor:
        """``[C, T, H, D]`` with a copy of the prompt's keys for each completion."""
        keys = torch.cat([prompts.keys[self._owners], own.keys], 1)  # [C, P + T, J, D]
        values = torch.cat([prompts.values[self._owners], own.values], 1)
        length, prompt_length = query.shape[1], prompts.keys.shape[1]
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

    def _split(self, query: Tensor, own: _KeysValues, prompts: _KeysValues, mask: Tensor) -> Tensor:
        """``[C, T, H, D]``: prompt and own part apart, as in decoding; no prompt copies."""
        heads = own.keys.shape[2]
        hidden = ~mask[:, :, :, None]  # [C, 1, T, 1, P + T]
        prompt_hidden, own_hidden = hidden.split([self.prompts.length, query.shape[1]], -1)
        query = query.unflatten(2, (heads, -1)).transpose(1, 2)  # [C, J, T, G, D]
        seen_own = SeenKeys(own.keys.transpose(1, 2), own.values.transpose(1, 2), own_hidden)
        seen_prompts = SeenKeys(
            prompts.keys[self._used].transpose(1, 2),
            prompts.values[self._used].transpose(1, 2),
            self._siblings.pad(prompt_hidden).transpose(1, 2),
        )
        output = split_attention(query, seen_own, seen_prompts, self._siblings)
        return output.transpose(1, 2).flatten(2, 3)

    def _added(self, completions: Ragged, window: int | None, dtype: torch.dtype) -> Tensor:
        """The mask as what is added to scores: PyTorch would make that in every layer."""
        if (window, dtype) not in self._addends:
            hidden = ~self._mask(completions, window)
            zeros = torch.zeros_like(hidden, dtype=dtype)
            self._addends[window, dtype] = zeros.masked_fill_(hidden, -torch.inf)
        return self._addends[window, dtype]

    def _mask(self, completions: Ragged, window: int | None) -> Tensor:
        """``[C, 1, T, P + T]``: True where a completion token sees a prompt or own token."""
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
