"""A mini-batch before it becomes tensors: groups, the weight of their tokens, parts that fit.

Each token carries its own weight in the loss, computed over the whole mini-batch: however a
mini-batch is cut into micro-batches, their losses add up to the same number.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup

__all__ = [
    "Aggregation",
    "Scores",
    "WeightedGroup",
    "check_groups",
    "fitting_parts",
    "joined_by_prompt",
    "shares",
    "weighted_groups",
]

Aggregation = Literal["token_mean", "sequence_mean", "length_free"]


_MAX_JOINED = 16
"""Completions of a joined group at most: shorter groups are padded to the longest one."""

Scores = tuple[tuple[float, ...], ...]
"""Log-probabilities of a group's tokens: completion, token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedGroup:
    """A group, or some of its completions, with the loss weight of their tokens."""

    group: TrainingGroup
    weights: tuple[float, ...]
    """Weight of every token of each completion."""
    old_logprobs: Scores | None = None
    """Denominators of the ratio; None to take the sampling log-probabilities."""
    reference_logprobs: Scores | None = None
    """Log-probabilities of the scripted policy; None without one."""

    def num_tokens(self, is_packed: bool) -> int:
        """Return the number of input tokens."""
        num_prompts = 1 if is_packed else len(self.group.completions)
        # The last token of a completion predicts nothing that was sampled: it is no input.
        own = sum(len(completion.token_ids) - 1 for completion in self.group.completions)
        return num_prompts * len(self.group.prompt_ids) + own


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
    """Return the groups of one mini-batch with their tokens' weights in its loss.

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
    """Return the same completions with as few copies of equal prompts as possible.

    Episodes of a level begin with one prompt, and in lockstep they come to it again. Only those of
    one optimizer step are joined, so that what a step is made of does not change: samples of one
    prompt are alike, and steps of few prompts taught less where both were tried.

    Args:
        groups: Those of an optimizer step.
    """
    found: list[WeightedGroup] = []
    last_of_prompt: dict[Hashable, int] = {}
    for weighted in groups:
        group = weighted.group
        prompt = (group.role, group.prompt_ids, group.temperature)
        last = last_of_prompt.get(prompt)
        if last is not None and len(found[last].weights) + len(weighted.weights) <= _MAX_JOINED:
            found[last] = _joined(found[last], weighted)
        else:
            last_of_prompt[prompt] = len(found)
            found.append(weighted)
    return found


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
        added = (
            len(completion.token_ids) - 1 + (0 if is_packed and index > first else prompt_length)
        )
        if index > first and num_tokens + added > max_tokens:
            yield _slice(weighted, first, index)
            first, num_tokens = index, 0
            added = len(completion.token_ids) - 1 + prompt_length
        num_tokens += added
    yield _slice(weighted, first, len(weighted.weights))


def shares(groups: Sequence[WeightedGroup], num_shares: int, is_packed: bool) -> list[list[int]]:
    """Return the indices of the groups in shares of about equal numbers of tokens.

    Every group is in one share; shares keep the order of the groups, and may be empty.
    """
    sizes = [group.num_tokens(is_packed) for group in groups]
    found: list[list[int]] = [[] for _ in range(num_shares)]
    loads = [0] * num_shares
    # Longest first to the lightest share: within 4/3 of the best balance, and equal on all ranks.
    for index in sorted(range(len(groups)), key=lambda index: -sizes[index]):
        lightest = loads.index(min(loads))
        found[lightest].append(index)
        loads[lightest] += sizes[index]
    return [sorted(share) for share in found]


def _slice(weighted: WeightedGroup, first: int, last: int) -> WeightedGroup:
    old, reference = weighted.old_logprobs, weighted.reference_logprobs
    return WeightedGroup(
        group=replace(weighted.group, completions=weighted.group.completions[first:last]),
        weights=weighted.weights[first:last],
        old_logprobs=None if old is None else old[first:last],
        reference_logprobs=None if reference is None else reference[first:last],
    )


def _joined(first: WeightedGroup, second: WeightedGroup) -> WeightedGroup:
    completions = first.group.completions + second.group.completions
    return WeightedGroup(
        group=replace(first.group, completions=completions),
        weights=first.weights + second.weights,
        old_logprobs=_both(first.old_logprobs, second.old_logprobs),
        reference_logprobs=_both(first.reference_logprobs, second.reference_logprobs),
    )


def _both(first: Scores | None, second: Scores | None) -> Scores | None:
    return None if first is None or second is None else first + second
