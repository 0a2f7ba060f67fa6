"""Rollout trees to decisions with advantages, and these to the training data of each policy.

A decision is a prompt with its candidates; a group is what an algorithm compares: the candidates of
one decision, or of several, also of several policies, so that advantages are kept by (decision,
candidate) in between.

Legend: D decisions of the step, K candidates of a decision.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pettingllms_trainers.config.algorithm import Algorithm, Member, StepContext
from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.types import (
    Decision,
    DecisionKey,
    RolloutTree,
    TrainingCompletion,
    TrainingGroup,
)

IsTrained = Callable[[str], bool]
"""Role to whether its samples are trained on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredDecisions:
    """Decisions whose candidates carry advantages, and how many were dropped."""

    decisions: tuple[Decision, ...]
    """Decisions of groups whose rewards differ, in play order, advantages filled in."""
    num_decisions: Mapping[str, int]
    """Decisions collected, by role."""
    num_used: Mapping[str, int]
    """Decisions kept in `decisions`, by role."""
    num_groups: Mapping[str, int]
    """Groups whose rewards differ, by policy: those that one of its candidates is in."""
    num_tokens: Mapping[str, int]
    """Sampled tokens of all decisions collected, by policy."""


def collect_decisions(
    trees: Sequence[RolloutTree], is_trained: IsTrained | None = None
) -> list[tuple[RolloutTree, Decision]]:
    """The decisions of all usable trees with their tree, in play order.

    Decisions of fixed policies are left out: there is nothing to compare or to train. So are those
    of roles that are not trained in the step.

    Args:
        trees: Rollouts; those that failed are left out.
        is_trained: Whether a role is trained; None: all are.

    Raises:
        GroupError: Two decisions have one key: they are compared as one prompt's candidates,
            so they would either mix prompts or count candidates twice.
    """
    seen: dict[DecisionKey, Decision] = {}
    found: list[tuple[RolloutTree, Decision]] = []
    for tree in trees:
        if tree.has_failed:
            # A failed episode has no outcome, and half of one would be compared with whole ones.
            continue
        for decision in tree.decisions:
            # Fixed policies have no token ids: there is nothing to train.
            if decision.prompt_ids and (is_trained is None or is_trained(decision.role)):
                _check_unique(seen, decision)
                found.append((tree, decision))
    return found


def _check_unique(seen: dict[DecisionKey, Decision], decision: Decision) -> None:
    # Two rollouts with one episode id would mix without a word: their keys are equal.
    earlier = seen.setdefault(decision.key, decision)
    if earlier is decision:
        return
    if earlier.prompt_ids != decision.prompt_ids:
        problem = (
            f"has members with different prompts ({len(earlier.prompt_ids)} and "
            f"{len(decision.prompt_ids)} tokens); candidates are compared under one prompt only"
        )
    else:
        problem = "occurs twice; its candidates would be counted twice in the group's statistics"
    raise GroupError(
        f"decision {tuple(decision.key)} {problem}. Give every rollout its own episode id."
    )


def score_decisions(
    trees: Sequence[RolloutTree],
    algorithm: Algorithm,
    is_trained: IsTrained | None = None,
    context: StepContext | None = None,
) -> ScoredDecisions:
    """The decisions with advantages; groups of equal rewards are dropped.

    Args:
        trees: Rollouts of one training step. Trees of equal `env_seed` are trajectories of
            one level.
        context: That of the rollouts; None: the first one.

    Raises:
        GroupError: Two decisions have one key.
    """
    found = collect_decisions(trees, is_trained)
    groups: dict[Hashable, list[Member]] = defaultdict(list)
    for key, member in algorithm.groups(found, context or StepContext()):
        groups[key].append(member)
    decisions = [decision for _, decision in found]
    advantages: dict[tuple[int, int], float] = defaultdict(float)  # by (decision, candidate)
    num_groups: Counter[str] = Counter()
    for members in groups.values():
        values = [member.value for member in members]
        if not has_signal(values):
            continue  # zero advantages would only dilute the means over tokens
        for member, advantage in zip(members, algorithm.advantages(values), strict=True):
            # A member may stand for several candidates: all decisions of an episode share its
            # return. And a candidate may be compared twice, with its siblings and by its episode.
            for place in member.candidates:
                advantages[place] += member.weight * advantage
        # Counted by policy, not by group: a group may compare roles of several policies.
        indices = {index for member in members for index, _ in member.candidates}
        num_groups.update({decisions[index].policy for index in indices})
    # After all groups are known: the scale is over the step, not over one group.
    if algorithm.scales_by_batch:
        advantages = _scaled_by_role(advantages, [decision.role for decision in decisions])
    used = [
        _with_advantages(decision, index, advantages)
        for index, decision in enumerate(decisions)
        # A candidate may be in none of the groups that were kept, and its sibling in one.
        if any((index, position) in advantages for position in range(len(decision.candidates)))
    ]
    return ScoredDecisions(
        decisions=tuple(used),
        num_decisions=Counter(decision.role for decision in decisions),
        num_used=Counter(decision.role for decision in used),
        num_groups=num_groups,
        num_tokens=sampled_tokens(decisions),
    )


def sampled_tokens(decisions: Iterable[Decision]) -> Counter[str]:
    """How many tokens were sampled for the candidates of decisions, by policy."""
    found: Counter[str] = Counter()
    for decision in decisions:
        found[decision.policy] += sum(len(c.completion.token_ids) for c in decision.candidates)
    return found


def _scaled_by_role(
    advantages: Mapping[tuple[int, int], float], roles: Sequence[str]
) -> dict[tuple[int, int], float]:
    """Divide advantages by their root mean square over the step, per role."""
    # Per role, since one with rare and large rewards would otherwise silence the others.
    of_role: dict[str, list[float]] = defaultdict(list)
    for (index, _), advantage in advantages.items():
        of_role[roles[index]].append(advantage)
    scales = {role: batch_scale(values) for role, values in of_role.items()}
    return {key: advantage / scales[roles[key[0]]] for key, advantage in advantages.items()}


def _with_advantages(
    decision: Decision, index: int, advantages: Mapping[tuple[int, int], float]
) -> Decision:
    candidates = (
        replace(candidate, advantage=advantages.get((index, position), 0.0))
        for position, candidate in enumerate(decision.candidates)
    )
    return replace(decision, candidates=tuple(candidates))


def training_groups(
    decisions: Sequence[Decision], *, mask_truncated: bool = False
) -> dict[str, list[TrainingGroup]]:
    """What each policy is trained on: the sampled token ids with their advantages.

    Args:
        decisions: Decisions whose candidates carry advantages.
        mask_truncated: Whether completions that reached the token limit are left out.

    Raises:
        GroupError: A candidate has no advantage, or one that is not finite.
    """
    data: dict[str, list[TrainingGroup]] = defaultdict(list)
    for decision in decisions:
        completions: list[TrainingCompletion] = []
        for candidate in decision.candidates:
            advantage = candidate.advantage
            if advantage is None or not math.isfinite(advantage):
                raise GroupError(f"decision {tuple(decision.key)} has the advantage {advantage}")
            completion = candidate.completion
            # It stays in its group's mean and deviation: only its own tokens are not learnt from.
            if mask_truncated and completion.finish_reason == "length":
                continue
            completions.append(
                TrainingCompletion(completion.token_ids, completion.logprobs, advantage)
            )
        if not completions:
            continue
        data[decision.policy].append(
            TrainingGroup(
                role=decision.role,
                prompt_ids=decision.prompt_ids,
                completions=tuple(completions),
                temperature=decision.temperature,
                grammar=decision.grammar,
            )
        )
    return dict(data)


Norm = Literal["std", "batch", "none"]

# Rewards are sums of a few floats: a spread below this is rounding, and dividing by it is noise.
_RELATIVE_TOLERANCE = 1e-9


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether the rewards of a group differ by more than rounding.

    Args:
        rewards: [K] rewards of the group.
    """
    if not rewards:
        return False
    # By the range, not the deviation: a sum of squares would underflow for tiny rewards.
    low, high = min(rewards), max(rewards)
    return high - low > _RELATIVE_TOLERANCE * max(1.0, abs(low), abs(high))


def grpo(rewards: Sequence[float], *, norm: Norm = "std") -> list[float]:
    """Return `(r - mean) / norm` of one group; all zero when the rewards are equal.

    Args:
        rewards: [K] rewards of candidates of one prompt.
        norm: `std` divides by the population standard deviation (GRPO), the others by 1:
            what `batch` divides by is known when all groups of a step are; see `batch_scale`.

    Returns:
        [K] advantages in the order of `rewards`; they sum to 0 up to rounding.

    Source:
        GRPO (arXiv 2402.03300, eq. 3), as in algorithm 1 of Stronger-MAS (arXiv 2510.11062);
        `norm="none"` is Dr. GRPO (arXiv 2503.20783). Changed: no epsilon in the divisor, because
        groups without spread give exact zeros instead.
    """
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if norm != "std":
        return centred
    # fsum: the result must not depend on the order of the candidates.
    std = math.sqrt(math.fsum(value * value for value in centred) / len(centred))
    return [value / std for value in centred]


def leave_one_out(rewards: Sequence[float], *, norm: Norm = "none") -> list[float]:
    """Each reward minus the mean of the *other* rewards of the group.

    Args:
        rewards: [K] rewards of candidates of one prompt.
        norm: `std` divides by the population standard deviation of the group.

    Returns:
        [K] advantages in the order of `rewards`; they sum to 0 up to rounding.

    Source:
        RLOO (arXiv 2402.14740, eq. 8); the optional division is ours.
    """
    num = len(rewards)
    # r_i - (S - r_i) / (K - 1) is the centred reward times K / (K - 1).
    return [value * num / (num - 1) if num > 1 else 0.0 for value in grpo(rewards, norm=norm)]


def batch_scale(advantages: Sequence[float]) -> float:
    """The root mean square of the advantages of a step's groups, or 1 if all are 0.

    Dividing by it instead of by each group's own standard deviation keeps groups apart in which
    much is at stake from those in which candidates hardly differ. The second are most groups if
    candidates are compared by a V, and what is between their candidates is the error of V.

    Args:
        advantages: [N] centred rewards of all groups with signal. Those of one role are all 0 where
            groups are of several, and it always earned their mean.

    Source:
        REINFORCE++-baseline (arXiv 2501.03262): the mean of the group, the scale of the batch.
        Changed: one scale per role, as the rewards of roles may differ in size.
    """
    mean_square = math.fsum(value * value for value in advantages) / max(len(advantages), 1)
    return math.sqrt(mean_square) or 1.0
