"""From groups to tensors: the sampled tokens as they were sampled, never text again.

A micro-batch holds its tokens once as model input (packed or as padded rows) and once as targets.

The logits of a token predict the next one. So a target's logits are those of the token before it.
For the first target of every completion that is the prompt's last token, which is why packing may
compute a prompt once; and the last token of a completion is no input.

Legend: N input tokens, M target tokens, R rows, L row length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from pettingllms_trainers.learning.weighted import Scores, WeightedGroup, fitting_parts
from pettingllms_trainers.types import TrainingGroup

__all__ = [
    "MicroBatch",
    "PackedTokens",
    "PaddedRows",
    "Targets",
    "micro_batches",
]

_MAX_PADDING = 2.0
"""Prompts of a micro-batch take at most this many times their tokens when they are padded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """The sampled tokens of a micro-batch: group by group, completion by completion, in order."""

    token_ids: Tensor
    """``[M]`` sampled token ids."""
    logprobs: Tensor
    """``[M]`` log-probabilities at sampling time."""
    completions: Tensor
    """``[M]`` number of the token's completion, from 0; none is divided between micro-batches."""
    advantages: Tensor
    """``[M]`` advantage of the token's completion."""
    weights: Tensor
    """``[M]`` share of the token in the loss of its mini-batch."""
    temperatures: Tensor | None
    """``[M]`` sampling temperatures; None when all are 1."""
    grammars: tuple[str, ...] | None = None
    """Form that was enforced on each completion, or an empty text; None when there was none."""
    old_logprobs: Tensor | None
    """``[M]`` denominators of the ratio; None to take the sampling log-probabilities."""
    reference_logprobs: Tensor | None
    """``[M]`` log-probabilities of the reference policy; None without one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedTokens:
    """All prompts one after the other, then all completions; no padding.

    A completion sees its prompt and itself; its positions continue from the end of its prompt. The
    last token of a completion predicts nothing that was sampled, so it is no input.
    """

    token_ids: Tensor
    """``[N]``."""
    positions: Tensor
    """``[N]`` position of each token in its own sequence."""
    kept: Tensor
    """``[M]`` index of the input token whose logits predict each target."""
    prompt_lengths: tuple[int, ...]
    """Lengths of the prompts, in order."""
    completion_lengths: tuple[int, ...]
    """Input tokens of the completions, in order; those of one token have none and are absent."""
    owners: tuple[int, ...]
    """Index of the prompt of each of these completions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddedRows:
    """One row per completion, its prompt before it, padded on the right."""

    token_ids: Tensor
    """``[R, L]``."""
    mask: Tensor
    """``[R, L]``: 1 for tokens, 0 for padding."""
    rows: Tensor
    """``[M]`` row of each target."""
    columns: Tensor
    """``[M]`` column of the input token whose logits predict each target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """What is in memory at once: model input and what it is to predict."""

    inputs: PackedTokens | PaddedRows
    targets: Targets

    def to(self, device: torch.device) -> MicroBatch:
        """Return the same micro-batch on a device."""
        return MicroBatch(inputs=_moved(self.inputs, device), targets=_moved(self.targets, device))


_TensorsT = TypeVar("_TensorsT", bound=Targets | PackedTokens | PaddedRows)


def _moved(tensors: _TensorsT, device: torch.device) -> _TensorsT:
    values = {field.name: getattr(tensors, field.name) for field in fields(tensors)}
    return replace(
        tensors,
        **{name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)},
    )


def micro_batches(
    groups: Sequence[WeightedGroup], *, max_tokens: int, is_packed: bool
) -> Iterator[MicroBatch]:
    """Cut a mini-batch into micro-batches of at most `max_tokens` input tokens.

    Groups keep their order. A group that is too long is split, its prompt repeated; a single
    completion that is too long is a micro-batch of its own. Prompts are padded to the longest of
    their micro-batch; where that would more than double them, another one begins.

    Args:
        groups: The mini-batch, with weights.
        max_tokens: Input tokens in memory at once, padding not counted.
        is_packed: Whether prompts are computed once per group, or rows are padded.
    """
    # Greedy and in order: the learner sorts by the length of prompts, so neighbours pad little.
    pending: list[WeightedGroup] = []
    num_pending = num_prompt = longest = 0
    parts = (part for group in groups for part in fitting_parts(group, max_tokens, is_packed))
    for part in parts:
        num_tokens, length = part.num_tokens(is_packed), len(part.group.prompt_ids)
        num_padded = (len(pending) + 1) * max(longest, length)
        # Padding is computed like tokens: one long prompt would make all short ones pay.
        is_uneven = num_padded > _MAX_PADDING * (num_prompt + length)
        if pending and (is_uneven or num_pending + num_tokens > max_tokens):
            yield _micro_batch(pending, is_packed)
            pending, num_pending, num_prompt, longest = [], 0, 0, 0
        pending.append(part)
        num_pending += num_tokens
        num_prompt += length
        longest = max(longest, length)
    if pending:
        yield _micro_batch(pending, is_packed)


def _micro_batch(groups: Sequence[WeightedGroup], is_packed: bool) -> MicroBatch:
    plain = [weighted.group for weighted in groups]
    inputs = _packed_tokens(plain) if is_packed else _padded_rows(plain)
    return MicroBatch(inputs=inputs, targets=_targets(groups))


def _targets(groups: Sequence[WeightedGroup]) -> Targets:
    pairs = [
        (completion, weight, weighted.group)
        for weighted in groups
        for completion, weight in zip(weighted.group.completions, weighted.weights, strict=True)
    ]
    # One number per completion is spread over its tokens here, once, rather than in the loss.
    repeats = torch.tensor([len(completion.token_ids) for completion, _, _ in pairs])  # sums to M

    def spread(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32).repeat_interleave(repeats)

    temperatures = [group.temperature for _, _, group in pairs]
    grammars = tuple(group.grammar for _, _, group in pairs)
    # A division by 1 would copy the logits, the largest tensor there is.
    is_plain = all(temperature == 1.0 for temperature in temperatures)
    return Targets(
        token_ids=torch.tensor([token for c, _, _ in pairs for token in c.token_ids]),
        logprobs=torch.tensor([value for c, _, _ in pairs for value in c.logprobs]),
        completions=torch.arange(len(pairs)).repeat_interleave(repeats),
        advantages=spread([completion.advantage for completion, _, _ in pairs]),
        weights=spread([weight for _, weight, _ in pairs]),
        temperatures=None if is_plain else spread(temperatures),
        grammars=grammars if any(grammars) else None,
        old_logprobs=_flat([weighted.old_logprobs for weighted in groups]),
        reference_logprobs=_flat([weighted.reference_logprobs for weighted in groups]),
    )


def _flat(scores: Sequence[Scores | None]) -> Tensor | None:
    # All or none: the ratios of a mini-batch are to one and the same policy.
    if any(score is None for score in scores):
        return None
    return torch.tensor([value for score in scores for part in score or () for value in part])


def _packed_tokens(groups: Sequence[TrainingGroup]) -> PackedTokens:
    token_ids = [token for group in groups for token in group.prompt_ids]
    positions = [i for group in groups for i in range(len(group.prompt_ids))]
    kept: list[int] = []
    lengths: list[int] = []
    owners: list[int] = []
    end = 0
    for owner, group in enumerate(groups):
        prompt_length = len(group.prompt_ids)
        end += prompt_length
        for completion in group.completions:
            own = len(completion.token_ids) - 1
            # The prompt's last token predicts the first target, each own token the one after it.
            kept += (end - 1, *range(len(token_ids), len(token_ids) + own))
            # A completion of one token is all target and no input: the prompt predicts it.
            if own:
                token_ids += completion.token_ids[:-1]
                positions += range(prompt_length, prompt_length + own)
                lengths.append(own)
                owners.append(owner)
    return PackedTokens(
        token_ids=torch.tensor(token_ids),
        positions=torch.tensor(positions),
        kept=torch.tensor(kept),
        prompt_lengths=tuple(len(group.prompt_ids) for group in groups),
        completion_lengths=tuple(lengths),
        owners=tuple(owners),
    )


def _padded_rows(groups: Sequence[TrainingGroup]) -> PaddedRows:
    rows = [
        (group.prompt_ids, completion.token_ids)
        for group in groups
        for completion in group.completions
    ]
    length = max(len(prompt) + len(completion) - 1 for prompt, completion in rows)
    # Padded on the right: positions count from 0 in every row, as they did when sampling.
    token_ids = torch.zeros(len(rows), length, dtype=torch.long)  # [R, L]
    mask = torch.zeros(len(rows), length, dtype=torch.long)
    columns: list[int] = []
    for index, (prompt, completion) in enumerate(rows):
        row = torch.tensor(prompt + completion[:-1])
        token_ids[index, : len(row)], mask[index, : len(row)] = row, 1
        columns += range(len(prompt) - 1, len(row))  # the token before each target
    counts = torch.tensor([len(completion) for _, completion in rows])
    return PaddedRows(
        token_ids=token_ids,
        mask=mask,
        rows=torch.arange(len(rows)).repeat_interleave(counts),
        columns=torch.tensor(columns),
    )
