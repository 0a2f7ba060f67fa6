"""Groups with the weight of their tokens: cut to fit into memory, and divided among ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pettingllms_trainers.types import TrainingGroup

__all__ = ["Scores", "WeightedGroup", "fitting_parts", "shares", "unweighted"]

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
    """Log-probabilities of the reference policy; None without one."""

    def num_tokens(self, is_packed: bool) -> int:
        """Return the number of input tokens."""
        num_prompts = 1 if is_packed else len(self.group.completions)
        # The last token of a completion predicts nothing that was sampled: it is no input.
        own = sum(len(completion.token_ids) - 1 for completion in self.group.completions)
        return num_prompts * len(self.group.prompt_ids) + own


def unweighted(groups: Sequence[TrainingGroup]) -> list[WeightedGroup]:
    """Return groups that pass through the model for what it says of them, without a loss."""
    return [WeightedGroup(group=group, weights=(0.0,) * len(group.completions)) for group in groups]


def shares(groups: Sequence[WeightedGroup], num_shares: int, is_packed: bool) -> list[list[int]]:
    """Return the indices of the groups in shares of about equal numbers of tokens.

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
        added = (
            len(completion.token_ids) - 1 + (0 if is_packed and index > first else prompt_length)
        )
        if index > first and num_tokens + added > max_tokens:
            yield _slice(weighted, first, index)
            # The prompt is computed again in every part: that is what splitting a group costs.
            first, num_tokens = index, 0
            added = len(completion.token_ids) - 1 + prompt_length
        num_tokens += added
    yield _slice(weighted, first, len(weighted.weights))


def _slice(weighted: WeightedGroup, first: int, last: int) -> WeightedGroup:
    old, reference = weighted.old_logprobs, weighted.reference_logprobs
    return WeightedGroup(
        group=replace(weighted.group, completions=weighted.group.completions[first:last]),
        weights=weighted.weights[first:last],
        old_logprobs=None if old is None else old[first:last],
        reference_logprobs=None if reference is None else reference[first:last],
    )
