"""What each optimizer step of an update learns from: groups, and the weight of their tokens.

Each token carries its own weight in the loss, computed over the whole mini-batch: however a
mini-batch is cut into micro-batches, their losses add up to the same number.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.learning.weighted import Scores, WeightedGroup
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup

__all__ = [
    "Aggregation",
    "UpdatePart",
    "check_groups",
    "joined_by_prompt",
    "mini_batch",
    "mini_batches",
    "parts_of",
    "weighted_groups",
]

Aggregation = Literal["token_mean", "sequence_mean", "length_free"]


_MAX_JOINED = 16
"""Completions of a joined group at most: shorter groups are padded to the longest one."""


class UpdatePart(NamedTuple):
    """What an optimizer step has whole or not at all: a group, or one completion of it."""

    source: int
    """Index of the group."""
    group: TrainingGroup
    old_logprobs: Scores | None
    reference_logprobs: Scores | None

    def completions(self) -> Iterator[UpdatePart]:
        """Yield a part for each completion."""
        for index, completion in enumerate(self.group.completions):
            yield UpdatePart(
                self.source,
                replace(self.group, completions=(completion,)),
                None if self.old_logprobs is None else (self.old_logprobs[index],),
                None if self.reference_logprobs is None else (self.reference_logprobs[index],),
            )


def parts_of(
    groups: Sequence[TrainingGroup],
    old: Sequence[Scores] | None,
    reference: Sequence[Scores] | None,
    *,
    by_completion: bool,
) -> list[UpdatePart]:
    """Return the parts of an update.

    Args:
        groups: All of it.
        old: Denominators of the ratios, by group; None to take the sampling log-probabilities.
        reference: Log-probabilities of the reference policy, by group; None without one.
        by_completion: Whether completions of one prompt may be in different optimizer steps.
    """
    parts = [
        UpdatePart(
            index,
            group,
            None if old is None else old[index],
            None if reference is None else reference[index],
        )
        for index, group in enumerate(groups)
    ]
    return [one for part in parts for one in part.completions()] if by_completion else parts


def mini_batches(
    parts: Sequence[UpdatePart], optimizer: OptimizerConfig, seed: tuple[int, int]
) -> Iterator[list[int]]:
    """Yield the indices of the parts of each optimizer step.

    Args:
        parts: Those of the update.
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
    parts: Sequence[UpdatePart], aggregation: Aggregation, max_completion_tokens: int
) -> list[WeightedGroup]:
    """Return what one optimizer step learns from; for the arguments see `weighted_groups`."""
    weighted = weighted_groups([part.group for part in parts], aggregation, max_completion_tokens)
    return joined_by_prompt(
        [
            replace(
                group,
                old_logprobs=part.old_logprobs,
                reference_logprobs=part.reference_logprobs,
            )
            for group, part in zip(weighted, parts, strict=True)
        ]
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
        prompt = (group.role, group.prompt_ids, group.temperature, group.grammar)
        last = last_of_prompt.get(prompt)
        if last is not None and len(found[last].weights) + len(weighted.weights) <= _MAX_JOINED:
            found[last] = _joined(found[last], weighted)
        else:
            last_of_prompt[prompt] = len(found)
            found.append(weighted)
    return found


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
