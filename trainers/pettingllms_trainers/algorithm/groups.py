"""Rollout trees to groups with advantages, and groups to the training data of each policy."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pettingllms_trainers.algorithm.advantage import Estimator, has_signal, suffix_sums
from pettingllms_trainers.config.algorithm import Credit, Grouping
from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.types import (
    Group,
    GroupKey,
    RolloutStatus,
    RolloutTree,
    SampledCompletion,
    TrainingGroup,
)

__all__ = ["ScoredGroups", "collect_groups", "score_groups", "training_groups"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredGroups:
    """Decisions whose candidates carry advantages, and how many had nothing to teach."""

    groups: tuple[Group, ...]
    """Decisions of comparison groups with spread, in play order, advantages filled in."""
    num_groups: Mapping[str, int]
    """Decisions collected, by role."""
    num_used: Mapping[str, int]
    """Decisions kept in `groups`, by role."""
    num_comparisons: Mapping[str, int]
    """Comparison groups with spread, by policy: those that one of its candidates is in."""


class _Member(NamedTuple):
    """One value that enters a comparison group, and the candidates that share it."""

    value: float
    candidates: tuple[tuple[int, int], ...]


def collect_groups(trees: Sequence[RolloutTree]) -> list[tuple[RolloutTree, Group]]:
    """Return the decisions of all usable trees with their tree, in play order.

    Decisions of players are left out: there is nothing to compare or to train.

    Args:
        trees: Rollouts; those whose status is not `ok` are left out.

    Raises:
        GroupError: Two decisions have one key: they are compared as one prompt's candidates,
            so they would either mix prompts or count candidates twice.
    """
    seen: dict[GroupKey, Group] = {}
    found: list[tuple[RolloutTree, Group]] = []
    for tree in trees:
        if tree.status is not RolloutStatus.OK:
            continue
        for group in tree.nodes:
            if group.prompt_ids:
                _check_unique(seen, group)
                found.append((tree, group))
    return found


def _check_unique(seen: dict[GroupKey, Group], group: Group) -> None:
    earlier = seen.setdefault(group.key, group)
    if earlier is group:
        return
    if earlier.prompt_ids != group.prompt_ids:
        problem = (
            f"has members with different prompts ({len(earlier.prompt_ids)} and "
            f"{len(group.prompt_ids)} tokens); candidates are compared under one prompt only"
        )
    else:
        problem = "occurs twice; its candidates would be counted twice in the group's statistics"
    raise GroupError(f"group {tuple(group.key)} {problem}. Give every rollout its own episode id.")


def score_groups(trees: Sequence[RolloutTree], estimator: Estimator) -> ScoredGroups:
    """Return all decisions with advantages; comparison groups of equal rewards are dropped.

    Args:
        trees: Rollouts of one training step. Trees of equal `env_seed` are trajectories of
            one level.
        estimator: Who is compared with whom, by what.

    Raises:
        GroupError: Two decisions have one key.
    """
    found = collect_groups(trees)
    comparisons: dict[Hashable, list[_Member]] = defaultdict(list)
    for key, member in _members(found, estimator):
        comparisons[key].append(member)
    groups = [group for _, group in found]
    advantages: dict[tuple[int, int], float] = {}
    num_comparisons: Counter[str] = Counter()
    for members in comparisons.values():
        values = [member.value for member in members]
        if not has_signal(values):
            continue
        for member, advantage in zip(members, estimator.advantages(values), strict=True):
            advantages.update(dict.fromkeys(member.candidates, advantage))
        indices = {index for member in members for index, _ in member.candidates}
        num_comparisons.update({groups[index].policy for index in indices})
    used = [
        _with_advantages(group, index, advantages)
        for index, group in enumerate(groups)
        if (index, 0) in advantages
    ]
    return ScoredGroups(
        groups=tuple(used),
        num_groups=Counter(group.role for group in groups),
        num_used=Counter(group.role for group in used),
        num_comparisons=num_comparisons,
    )


def _members(
    found: Sequence[tuple[RolloutTree, Group]], estimator: Estimator
) -> list[tuple[Hashable, _Member]]:
    if estimator.credit == "episode":
        return _episode_members(found, estimator)
    members: list[tuple[Hashable, _Member]] = []
    for index, (tree, group) in enumerate(found):
        key = _comparison_key(tree, group, estimator.grouping)
        values = _credited(tree, group, estimator.credit)
        members += [
            (key, _Member(value, ((index, candidate),))) for candidate, value in enumerate(values)
        ]
    return members


def _episode_members(
    found: Sequence[tuple[RolloutTree, Group]], estimator: Estimator
) -> list[tuple[Hashable, _Member]]:
    """One member per trajectory and agent: long episodes do not weigh more than short ones."""
    positions: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index, (tree, group) in enumerate(found):
        positions[tree.episode, group.key.agent].append(index)
    members: list[tuple[Hashable, _Member]] = []
    for indices in positions.values():
        tree, group = found[indices[0]]
        key = _comparison_key(tree, group, estimator.grouping)
        value = _returns_to_go(tree, group.key.agent)[0]
        candidates = tuple(
            (index, candidate)
            for index in indices
            for candidate in range(len(found[index][1].candidates))
        )
        members.append((key, _Member(value, candidates)))
    return members


def _comparison_key(tree: RolloutTree, group: Group, grouping: Grouping) -> Hashable:
    level, agent, turn = tree.env_seed, group.key.agent, group.key.turn
    keys: dict[Grouping, Hashable] = {
        "at_grpo": group.key,
        "agent_turn": (level, agent, turn),
        "agent": (level, agent),
        "turn": (level, turn),
        "trajectory": (level, agent),
        "none": (),
    }
    return keys[grouping]


def _credited(tree: RolloutTree, group: Group, credit: Credit) -> list[float]:
    if credit == "step":
        return [candidate.reward for candidate in group.candidates]
    return [_returns_to_go(tree, group.key.agent)[group.key.node]] * len(group.candidates)


def _returns_to_go(tree: RolloutTree, agent: str) -> list[float]:
    """Return-to-go of an agent at every node of the path: all team parts, its own local parts."""
    rewards: list[float] = []
    for group in tree.nodes:
        if group.chosen is None:
            raise GroupError(
                f"group {tuple(group.key)} has no chosen candidate, so no return can be credited"
            )
        candidate = group.candidates[group.chosen]
        is_own = group.key.agent == agent
        rewards.append(candidate.reward if is_own else candidate.reward - candidate.local)
    return suffix_sums(rewards)


def _with_advantages(
    group: Group, index: int, advantages: Mapping[tuple[int, int], float]
) -> Group:
    candidates = (
        replace(candidate, advantage=advantages[index, position])
        for position, candidate in enumerate(group.candidates)
    )
    return replace(group, candidates=tuple(candidates))


def training_groups(
    groups: Sequence[Group],
) -> dict[str, list[TrainingGroup]]:
    """Return what each policy is trained on: the sampled token ids with their advantages.

    Args:
        groups: Decisions whose candidates carry advantages.

    Raises:
        GroupError: A candidate has no advantage, or one that is not finite.
    """
    data: dict[str, list[TrainingGroup]] = defaultdict(list)
    for group in groups:
        completions: list[SampledCompletion] = []
        for candidate in group.candidates:
            advantage = candidate.advantage
            if advantage is None or not math.isfinite(advantage):
                raise GroupError(f"group {tuple(group.key)} has the advantage {advantage}")
            completion = candidate.completion
            completions.append(
                SampledCompletion(completion.token_ids, completion.logprobs, advantage)
            )
        data[group.policy].append(
            TrainingGroup(
                role=group.role,
                prompt_ids=group.prompt_ids,
                completions=tuple(completions),
                temperature=group.temperature,
            )
        )
    return dict(data)
