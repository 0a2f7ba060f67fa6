"""Rollout trees to decisions with advantages, and these to the training data of each policy.

A decision is a prompt with its candidates; a group is what is compared. With `at_grpo` each
decision is a group of its own; the other groupings compare candidates of several decisions, also
of several policies, so that advantages are kept by (decision, candidate) in between.

Legend: D decisions of the step, K candidates of a decision.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pettingllms_trainers.algorithm.advantage import (
    advantages_of,
    batch_scale,
    has_signal,
    returns_to_go,
)
from pettingllms_trainers.algorithm.state_returns import StateReturns
from pettingllms_trainers.config.algorithm import AdvantageConfig, Grouping
from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.types import (
    Decision,
    DecisionKey,
    RolloutStatus,
    RolloutTree,
    TrainingCompletion,
    TrainingGroup,
)

__all__ = [
    "IsTrained",
    "ScoredDecisions",
    "collect_decisions",
    "score_decisions",
    "training_groups",
]


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


class _Member(NamedTuple):
    """One value that is compared, and the candidates that get its advantage."""

    value: float
    candidates: tuple[tuple[int, int], ...]
    """(decision, candidate) indices into D and K."""


def collect_decisions(
    trees: Sequence[RolloutTree], is_trained: IsTrained | None = None
) -> list[tuple[RolloutTree, Decision]]:
    """Return the decisions of all usable trees with their tree, in play order.

    Decisions of fixed policies are left out: there is nothing to compare or to train. So are those
    of roles that are not trained in the step.

    Args:
        trees: Rollouts; those whose status is not `ok` are left out.
        is_trained: Whether a role is trained; None: all are.

    Raises:
        GroupError: Two decisions have one key: they are compared as one prompt's candidates,
            so they would either mix prompts or count candidates twice.
    """
    seen: dict[DecisionKey, Decision] = {}
    found: list[tuple[RolloutTree, Decision]] = []
    for tree in trees:
        if tree.status is not RolloutStatus.OK:
            continue
        for decision in tree.decisions:
            if decision.prompt_ids and (is_trained is None or is_trained(decision.role)):
                _check_unique(seen, decision)
                found.append((tree, decision))
    return found


def _check_unique(seen: dict[DecisionKey, Decision], decision: Decision) -> None:
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
    trees: Sequence[RolloutTree], config: AdvantageConfig, is_trained: IsTrained | None = None
) -> ScoredDecisions:
    """Return the decisions with advantages; groups of equal rewards are dropped.

    Args:
        trees: Rollouts of one training step. Trees of equal `env_seed` are trajectories of
            one level.
        config: Who is compared with whom, by what.
        is_trained: See `collect_decisions`.

    Raises:
        GroupError: Two decisions have one key.
    """
    found = collect_decisions(trees, is_trained)
    groups: dict[Hashable, list[_Member]] = defaultdict(list)
    for key, member in _members(found, config):
        groups[key].append(member)
    decisions = [decision for _, decision in found]
    advantages: dict[tuple[int, int], float] = {}  # by (decision, candidate)
    num_groups: Counter[str] = Counter()
    for members in groups.values():
        values = [member.value for member in members]
        if not has_signal(values):
            continue  # zero advantages would only dilute the means over tokens
        for member, advantage in zip(members, advantages_of(values, config), strict=True):
            advantages.update(dict.fromkeys(member.candidates, advantage))
        indices = {index for member in members for index, _ in member.candidates}
        num_groups.update({decisions[index].policy for index in indices})
    if config.norm == "batch":
        advantages = _scaled_by_role(advantages, [decision.role for decision in decisions])
    used = [
        _with_advantages(decision, index, advantages)
        for index, decision in enumerate(decisions)
        # All candidates of a decision are in groups that were kept, or none is.
        if (index, 0) in advantages
    ]
    return ScoredDecisions(
        decisions=tuple(used),
        num_decisions=Counter(decision.role for decision in decisions),
        num_used=Counter(decision.role for decision in used),
        num_groups=num_groups,
    )


def _members(
    found: Sequence[tuple[RolloutTree, Decision]], config: AdvantageConfig
) -> list[tuple[Hashable, _Member]]:
    if config.credit == "episode":
        return _episode_members(found, config)
    state_returns = _state_returns(found, config)
    members: list[tuple[Hashable, _Member]] = []
    for index, (tree, decision) in enumerate(found):
        if config.credit in ("value", "continuation") and len(decision.candidates) == 1:
            continue  # nobody asked what follows it, so that it compares with none
        key = _comparison_key(tree, decision, config.grouping)
        values = _credited(tree, decision, config, state_returns)
        members += [
            (key, _Member(value, ((index, candidate),))) for candidate, value in enumerate(values)
        ]
    return members


def _episode_members(
    found: Sequence[tuple[RolloutTree, Decision]], config: AdvantageConfig
) -> list[tuple[Hashable, _Member]]:
    """One member per trajectory and agent: long episodes do not weigh more than short ones."""
    positions: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index, (tree, decision) in enumerate(found):
        positions[tree.episode, decision.key.agent].append(index)
    members: list[tuple[Hashable, _Member]] = []
    for indices in positions.values():
        tree, decision = found[indices[0]]
        key = _comparison_key(tree, decision, config.grouping)
        value = _returns_to_go(tree, decision.key.agent, config.gamma)[0]
        candidates = tuple(
            (index, candidate)
            for index in indices
            for candidate in range(len(found[index][1].candidates))
        )
        members.append((key, _Member(value, candidates)))
    return members


def _scaled_by_role(
    advantages: Mapping[tuple[int, int], float], roles: Sequence[str]
) -> dict[tuple[int, int], float]:
    """Divide advantages by their root mean square over the step, per role."""
    of_role: dict[str, list[float]] = defaultdict(list)
    for (index, _), advantage in advantages.items():
        of_role[roles[index]].append(advantage)
    scales = {role: batch_scale(values) for role, values in of_role.items()}
    return {key: advantage / scales[roles[key[0]]] for key, advantage in advantages.items()}


def _comparison_key(tree: RolloutTree, decision: Decision, grouping: Grouping) -> Hashable:
    # The environment's seed stands for the level: episodes of one level share it.
    # Levels of two environments have different seeds, too.
    level, agent, turn = tree.env_seed, decision.key.agent, decision.key.turn
    keys: dict[Grouping, Hashable] = {
        "at_grpo": decision.key,
        "agent_turn": (level, agent, turn),
        "agent": (level, agent),
        "turn": (level, turn),
        "trajectory": (level, agent),
        "none": tree.env,
    }
    return keys[grouping]


def _state_returns(
    found: Sequence[tuple[RolloutTree, Decision]], config: AdvantageConfig
) -> dict[int, StateReturns]:
    """Return those of every level, by its seed; none with other credits."""
    if config.credit != "state_return":
        return {}
    of_level: dict[int, dict[int, RolloutTree]] = defaultdict(dict)
    for tree, _ in found:
        of_level[tree.env_seed][tree.episode] = tree
    return {
        level: StateReturns([*trees.values()], config.gamma) for level, trees in of_level.items()
    }


def _credited(
    tree: RolloutTree,
    decision: Decision,
    config: AdvantageConfig,
    state_returns: Mapping[int, StateReturns],
) -> list[float]:
    if config.credit in ("step", "value", "continuation"):
        return [candidate.reward + candidate.value for candidate in decision.candidates]
    if config.credit == "state_return":
        to_go = state_returns[tree.env_seed].of(tree.episode, decision.key.agent)
    else:
        to_go = _returns_to_go(tree, decision.key.agent, config.gamma)
    return [to_go[decision.key.position]] * len(decision.candidates)


def _returns_to_go(tree: RolloutTree, agent: str, gamma: float) -> list[float]:
    """Return an agent's return-to-go at each decision of the path: team parts and its own local."""
    rewards: list[float] = []
    for decision in tree.decisions:
        if decision.chosen is None:
            raise GroupError(
                f"decision {tuple(decision.key)} has no chosen candidate to credit a return"
            )
        candidate = decision.candidates[decision.chosen]
        is_own = decision.key.agent == agent
        rewards.append(candidate.reward if is_own else candidate.reward - candidate.local)
    return returns_to_go(rewards, gamma)


def _with_advantages(
    decision: Decision, index: int, advantages: Mapping[tuple[int, int], float]
) -> Decision:
    candidates = (
        replace(candidate, advantage=advantages[index, position])
        for position, candidate in enumerate(decision.candidates)
    )
    return replace(decision, candidates=tuple(candidates))


def training_groups(
    decisions: Sequence[Decision], *, mask_truncated: bool = False
) -> dict[str, list[TrainingGroup]]:
    """Return what each policy is trained on: the sampled token ids with their advantages.

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
            )
        )
    return dict(data)
