"""From groups to tensors: the sampled tokens as they were sampled, never text again.

An optimizer step learns from a mini-batch, whose tokens have their weights in its loss: however it
is cut into micro-batches, which are in memory at once, their losses add up to the same number.

A micro-batch holds its tokens once as model input (packed or as padded rows) and once as targets.

The logits of a token predict the next one. So a target's logits are those of the token before it.
For the first target of every completion that is the prompt's last token, which is why packing may
compute a prompt once; and the last token of a completion is not an input.

Legend: N input tokens, M target tokens, R rows, L row length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.types import Scores, TrainingCompletion, TrainingGroup

Aggregation = Literal["token_mean", "sequence_mean", "length_free"]
_MAX_PADDING = 2.0
"""Prompts of a micro-batch take at most this many times their tokens when they are padded."""
_MAX_JOINED = 16
"""Completions of a joined group at most: shorter groups are padded to the longest one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """The sampled tokens of a policy in a micro-batch, completion by completion in order."""

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
    last token of a completion predicts nothing that was sampled, so it is not an input.
    """

    token_ids: Tensor
    """``[N]`` input tokens."""
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
    """``[R, L]`` input tokens; 0 in the padding."""
    mask: Tensor
    """``[R, L]``: 1 for tokens, 0 for padding."""
    rows: Tensor
    """``[M]`` row of each target."""
    columns: Tensor
    """``[M]`` column of the input token whose logits predict each target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """What is in memory at once: model input and the tokens that it predicts."""

    inputs: PackedTokens | PaddedRows
    """The model input of all policies."""
    targets: Mapping[int, Targets]
    """By policy, see `WeightedGroup.policy`; they follow each other as their numbers do."""
    rows: tuple[tuple[int, int], ...]
    """Policy and how many input rows, packed tokens or padded sequences, it has in a row."""

    def to(self, device: torch.device) -> MicroBatch:
        """The same micro-batch on a device."""
        targets = {policy: _moved(part, device) for policy, part in self.targets.items()}
        return MicroBatch(inputs=_moved(self.inputs, device), targets=targets, rows=self.rows)


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
    # Policy by policy: few long pieces of the batch are then of one adapter each.
    groups = sorted(groups, key=_policy_of)
    plain = [weighted.group for weighted in groups]
    inputs = _packed_tokens(plain) if is_packed else _padded_rows(plain)
    counts: list[tuple[int, int]] = []
    if isinstance(inputs, PackedTokens):
        own = zip(inputs.owners, inputs.completion_lengths, strict=True)
        counts = [*enumerate(inputs.prompt_lengths), *own]
    else:
        counts = [(index, len(group.completions)) for index, group in enumerate(plain)]
    pieces = itertools.groupby(counts, key=lambda row: groups[row[0]].policy)
    return MicroBatch(
        inputs=inputs,
        targets={p: _targets(list(own)) for p, own in itertools.groupby(groups, key=_policy_of)},
        rows=tuple((policy, sum(count for _, count in piece)) for policy, piece in pieces),
    )


def _policy_of(weighted: WeightedGroup) -> int:
    return weighted.policy


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


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedGroup:
    """A group, or some of its completions, with the loss weight of their tokens."""

    group: TrainingGroup
    """The prompt with these completions."""
    weights: tuple[float, ...]
    """Loss weight of each token, by completion."""
    old_logprobs: Scores | None = None
    """Denominators of the ratio; None to take the sampling log-probabilities."""
    reference_logprobs: Scores | None = None
    """Log-probabilities of the reference policy; None without one."""
    source: int = 0
    """Index of its group in the update; of completions that were joined, that of the first."""
    policy: int = 0
    """Index of its policy among those that compute in the same passes."""

    def num_tokens(self, is_packed: bool) -> int:
        """The number of input tokens."""
        num_prompts = 1 if is_packed else len(self.group.completions)
        # The last token of a completion predicts nothing that was sampled: it is not an input.
        own = sum(len(completion.token_ids) - 1 for completion in self.group.completions)
        return num_prompts * len(self.group.prompt_ids) + own


def unweighted(groups: Sequence[TrainingGroup]) -> list[WeightedGroup]:
    """Groups that pass through the model for what it says of them, without a loss."""
    return [WeightedGroup(group=group, weights=(0.0,) * len(group.completions)) for group in groups]


def shares(groups: Sequence[WeightedGroup], num_shares: int, is_packed: bool) -> list[list[int]]:
    """The indices of the groups in shares of about equal numbers of tokens.

    Every group is in one share; shares keep the order of the groups, and may be empty.
    """
    sizes = [group.num_tokens(is_packed) for group in groups]
    # Ranks agree without a message, since this depends on the groups alone.
    found: list[list[int]] = [[] for _ in range(num_shares)]
    loads = [0] * num_shares
    # Longest first to the lightest share: within 4/3 of the best balance, and equal on all ranks.
    for index in sorted(range(len(groups)), key=lambda index: -sizes[index]):
        lightest = loads.index(min(loads))
        found[lightest].append(index)
        loads[lightest] += sizes[index]
    return [sorted(share) for share in found]


def fitting_parts(
    weighted: WeightedGroup, max_tokens: int, is_packed: bool
) -> Iterator[WeightedGroup]:
    """Yield the group, or its completions in parts of at most `max_tokens` input tokens.

    The prompt is repeated in every part; a single completion that is too long is a part of its own.
    """
    if weighted.num_tokens(is_packed) <= max_tokens:
        yield weighted
        return
    prompt_length = len(weighted.group.prompt_ids)
    first = num_tokens = 0
    for index, completion in enumerate(weighted.group.completions):
        own = len(completion.token_ids) - 1
        # Packed, the prompt is input once in a part; padded, it is in every row.
        added = own + (0 if is_packed and index > first else prompt_length)
        if index > first and num_tokens + added > max_tokens:
            yield _slice(weighted, first, index)
            # The prompt is computed again in every part: that is what splitting a group costs.
            first, num_tokens, added = index, 0, own + prompt_length
        num_tokens += added
    yield _slice(weighted, first, len(weighted.weights))


def _slice(weighted: WeightedGroup, first: int, last: int) -> WeightedGroup:
    old, reference = weighted.old_logprobs, weighted.reference_logprobs
    return replace(
        weighted,
        group=replace(weighted.group, completions=weighted.group.completions[first:last]),
        weights=weighted.weights[first:last],
        old_logprobs=None if old is None else old[first:last],
        reference_logprobs=None if reference is None else reference[first:last],
    )


def parts_of(
    groups: Sequence[TrainingGroup],
    old: Sequence[Scores] | None,
    reference: Sequence[Scores] | None,
    *,
    by_completion: bool,
) -> list[WeightedGroup]:
    """What an optimizer step has whole or not at all: groups, or completions of them.

    Args:
        old: Denominators of the ratios, by group; None to take the sampling log-probabilities.
        reference: Log-probabilities of the reference policy, by group; None without one.
        by_completion: Whether completions of one prompt may be in different optimizer steps.
    """
    parts = [
        replace(
            part,
            source=index,
            old_logprobs=None if old is None else old[index],
            reference_logprobs=None if reference is None else reference[index],
        )
        for index, part in enumerate(unweighted(groups))
    ]
    if not by_completion:
        return parts
    return [_slice(part, at, at + 1) for part in parts for at in range(len(part.weights))]


def mini_batches(
    parts: Sequence[WeightedGroup], optimizer: OptimizerConfig, seed: tuple[int, int]
) -> Iterator[list[int]]:
    """Yield the indices of the parts of each optimizer step.

    Args:
        optimizer: Epochs, and completions of an optimizer step.
        seed: Decides the order, with the number of the epoch.
    """
    # Counted in completions: a group has K of them in a tree, and one in a whole episode.
    num_completions = sum(len(part.group.completions) for part in parts)
    num_steps = optimizer.num_minibatches(num_completions, len(parts))
    for epoch in range(optimizer.num_epochs):
        order = np.random.default_rng((*seed, epoch)).permutation(len(parts))
        # Divided evenly: a small last mini-batch would take a whole step on a few groups.
        for indices in np.array_split(order, num_steps):
            yield indices.tolist()


def mini_batch(
    parts: Sequence[WeightedGroup], aggregation: Aggregation, max_completion_tokens: int
) -> list[WeightedGroup]:
    """What one optimizer step learns from; for the arguments see `weighted_groups`."""
    weighted = weighted_groups([part.group for part in parts], aggregation, max_completion_tokens)
    return joined_by_prompt(
        [replace(part, weights=own.weights) for part, own in zip(parts, weighted, strict=True)]
    )


def check_groups(groups: Sequence[TrainingGroup]) -> None:
    """Raise `InvalidArgument` if a group cannot be trained on."""
    for index, group in enumerate(groups):
        problem = _problem(group)
        if problem is not None:
            raise InvalidArgument(
                "groups",
                f"{problem} (group {index}, role {group.role!r})",
                "groups with a prompt and completions of at least one token, one log-probability "
                "per token, finite advantages and a temperature above 0",
                "pass what was sampled, unchanged; greedy samples cannot be trained on",
            )


def _problem(group: TrainingGroup) -> str | None:
    if not group.prompt_ids or not group.completions:
        return "a group without prompt or completions"
    if not group.temperature > 0:
        return f"temperature {group.temperature}"
    for completion in group.completions:
        if not completion.token_ids or len(completion.token_ids) != len(completion.logprobs):
            return (
                f"{len(completion.token_ids)} tokens with {len(completion.logprobs)} "
                "log-probabilities"
            )
        if not math.isfinite(completion.advantage):
            return f"advantage {completion.advantage}"
        if not all(map(math.isfinite, completion.logprobs)):
            return "a log-probability that is not finite"
    return None


def weighted_groups(
    groups: Sequence[TrainingGroup], aggregation: Aggregation, max_completion_tokens: int
) -> list[WeightedGroup]:
    """The groups of one mini-batch with their tokens' weights in its loss.

    Args:
        groups: The whole mini-batch.
        aggregation: ``token_mean``: the mean over all tokens (DAPO, arXiv 2503.14476, section 3.3);
            ``sequence_mean``: the mean over completions of their token means (GRPO, arXiv
            2402.03300, eq. 3); ``length_free``: the sum over tokens divided by a constant (Dr.
            GRPO, arXiv 2503.20783, section 3.2), here completions times `max_completion_tokens`.
        max_completion_tokens: Length limit at sampling time.
    """
    # Divisors are those of the whole mini-batch: parts of it, on this rank or another, then add up.
    lengths = [len(completion.token_ids) for group in groups for completion in group.completions]
    total, count = sum(lengths), len(lengths)

    def weight(completion: TrainingCompletion) -> float:
        if aggregation == "token_mean":
            return 1 / total
        if aggregation == "sequence_mean":
            return 1 / (count * len(completion.token_ids))
        return 1 / (count * max_completion_tokens)

    return [
        WeightedGroup(group=group, weights=tuple(weight(c) for c in group.completions))
        for group in groups
    ]


def joined_by_prompt(groups: Sequence[WeightedGroup]) -> list[WeightedGroup]:
    """The same completions with as few copies of equal prompts as possible.

    Episodes of a level begin with one prompt. Only those of one optimizer step are joined, so that
    what a step is made of does not change: samples of one prompt are alike, and steps of few
    prompts taught less where both were tried.
    """
    joined: list[WeightedGroup] = []
    last_of_prompt: dict[Hashable, int] = {}
    for weighted in groups:
        group = weighted.group
        # Logits of one prompt differ by temperature and grammar; roles have gradients of their own.
        prompt = (group.role, group.prompt_ids, group.temperature, group.grammar)
        last = last_of_prompt.get(prompt)
        if last is not None and len(joined[last].weights) + len(weighted.weights) <= _MAX_JOINED:
            joined[last] = _joined(joined[last], weighted)
        else:
            last_of_prompt[prompt] = len(joined)
            joined.append(weighted)
    return joined


def _joined(first: WeightedGroup, second: WeightedGroup) -> WeightedGroup:
    completions = first.group.completions + second.group.completions
    return replace(
        first,
        group=replace(first.group, completions=completions),
        weights=first.weights + second.weights,
        old_logprobs=_both(first.old_logprobs, second.old_logprobs),
        reference_logprobs=_both(first.reference_logprobs, second.reference_logprobs),
    )


def _both(first: Scores | None, second: Scores | None) -> Scores | None:
    return None if first is None or second is None else first + second
