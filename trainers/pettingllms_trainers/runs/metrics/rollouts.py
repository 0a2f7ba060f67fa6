"""Metrics of the rollouts of a train step: by environment and by role."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from pettingllms_trainers.learning.groups import ScoredDecisions
from pettingllms_trainers.runs.metrics.metric import AnyMetric, Metric, SubjectT
from pettingllms_trainers.types import Candidate, RolloutStatus, RolloutTree, Shown, TreeOutcome


class _Rollouts(NamedTuple):
    """Subject of `_ROLLOUT`: the usable rollouts of a train step."""

    trees: Sequence[RolloutTree]
    num_failed: int
    num_candidates: int
    """Candidates that were asked for per decision."""

    def outcomes(self) -> list[TreeOutcome]:
        return [tree.outcome for tree in self.trees if tree.outcome is not None]

    def num_missing(self) -> int:
        decisions = (d for tree in self.trees for d in tree.decisions if d.prompt_ids)
        lengths = (len(decision.candidates) for decision in decisions)
        # Decisions that do not branch were asked for one.
        return sum(self.num_candidates - length for length in lengths if length > 1)


class _Role(NamedTuple):
    """Subject of `_CANDIDATES` and `_COMPARED`: a role in a train step."""

    candidates: Sequence[Candidate]
    num_decisions: int
    num_used: int


_ROLLOUT: Mapping[str, Metric[_Rollouts]] = {
    "num_trees": Metric("Rollouts of the step that can be used.", lambda s: len(s.trees)),
    "num_failed_trees": Metric(
        "Rollouts left out because generation or the environment failed.", lambda s: s.num_failed
    ),
    "num_failed_candidates": Metric(
        "Candidates left out because generation failed.", _Rollouts.num_missing
    ),
    "num_fixed_actions": Metric(
        "Actions of fixed policies: one per decision, not compared and not trained.",
        lambda s: sum(not d.prompt_ids for tree in s.trees for d in tree.decisions),
    ),
    "success": Metric(
        "Share of rollouts whose followed path solves the task. With a greedy branch choice "
        "this is best-of-K, not a learning curve.",
        lambda s: _mean(outcome.success for outcome in s.outcomes()),
    ),
    "num_turns": Metric(
        "Mean number of turns of a rollout.",
        lambda s: _mean(outcome.num_turns for outcome in s.outcomes()),
    ),
    "num_completion_tokens": Metric(
        "Sampled tokens of the step, also of failed rollouts and of continuations."
    ),
    "mean_age": Metric(
        "Mean age of the sampled tokens: train steps that the policies have taken since their "
        "weights drew them; 0 without rollout.max_staleness."
    ),
    "max_age": Metric("Age of the oldest of these tokens."),
    "num_stale_episodes": Metric(
        "Episodes that were given up, since by the next train step they would have been older than "
        "rollout.max_staleness; they are in no other figure."
    ),
    "num_continuation_tokens": Metric(
        "Those of continuations among them.",
        lambda s: sum(tree.num_continuation_tokens for tree in s.trees),
    ),
    "num_refills": Metric(
        "Rounds of further levels, played because a policy had too few groups whose rewards differ."
    ),
}
_ENVIRONMENT: Mapping[str, Metric[_Rollouts]] = {
    "num_trees": Metric("Usable rollouts of the environment.", lambda s: len(s.trees)),
    "num_failed_trees": Metric("Those that failed.", lambda s: s.num_failed),
    "success": Metric(
        "Share of them whose followed path solves the task.",
        _ROLLOUT["success"].of,
        Shown("success", ".0%"),
    ),
    "num_turns": Metric("Mean number of their turns.", _ROLLOUT["num_turns"].of),
}
_CANDIDATES: Mapping[str, Metric[_Role]] = {
    "reward": Metric(
        "Mean reward of the role's candidates, alpha * team + local.",
        lambda s: _mean(c.reward for c in s.candidates),
        Shown("reward", "+.3f"),
    ),
    "team": Metric(
        "Mean team part of that reward, alpha included.",
        lambda s: _mean(c.team for c in s.candidates),
    ),
    "local": Metric(
        "Mean local part of that reward.", lambda s: _mean(c.local for c in s.candidates)
    ),
    "value": Metric(
        "Mean of what was expected to follow the role's candidates, by V or continuations.",
        lambda s: _mean(c.value for c in s.candidates),
    ),
    "parse_errors": Metric(
        "Share of the role's candidates that could not be read.",
        lambda s: _mean(c.parse_error is not None for c in s.candidates),
        Shown("unreadable", ".0%"),
    ),
    "truncated": Metric(
        "Share of the role's candidates that reached the token limit.",
        lambda s: _mean(c.completion.finish_reason == "length" for c in s.candidates),
        Shown("truncated", ".0%"),
    ),
    "same_answer": Metric(
        "Share of the role's candidates that have its commonest text, over all prompts; near 1 the "
        "role answers all prompts alike.",
        lambda s: _commonest([c.completion.text for c in s.candidates]),
    ),
}
_COMPARED: Mapping[str, Metric[_Role]] = {
    "num_tokens": Metric(
        "Mean tokens of the role's candidates.",
        lambda s: _mean(len(c.completion.token_ids) for c in s.candidates),
    ),
    "num_decisions": Metric("Decisions of the role.", lambda s: s.num_decisions),
    "decisions_used": Metric(
        "Share of the role's decisions in groups whose rewards differ; the others are dropped.",
        lambda s: s.num_used / s.num_decisions,
        Shown("used", ".0%"),
    ),
}

ROLLOUTS: Mapping[str, AnyMetric] = {
    **{f"rollout/{name}": metric for name, metric in _ROLLOUT.items()},
    **{f"env/<env>/{name}": metric for name, metric in _ENVIRONMENT.items()},
    **{f"role/<role>/{name}": metric for name, metric in {**_CANDIDATES, **_COMPARED}.items()},
}
"""Metrics of rollouts, by name."""


def rollout_metrics(
    trees: Sequence[RolloutTree], scored: ScoredDecisions, num_candidates: int
) -> dict[str, float]:
    """Return the metrics of the rollouts of a train step.

    Args:
        trees: All rollouts of the step.
        scored: Their decisions with advantages.
        num_candidates: Candidates that were asked for per decision.
    """
    usable = [tree for tree in trees if tree.status is RolloutStatus.OK]
    rollouts = _Rollouts(usable, len(trees) - len(usable), num_candidates)
    metrics = _computed("rollout", _ROLLOUT, rollouts)
    metrics["rollout/num_completion_tokens"] = num_sampled_tokens(trees)
    for env in dict.fromkeys(tree.env for tree in trees if tree.env):
        played = [tree for tree in trees if tree.env == env]
        own = [tree for tree in played if tree.status is RolloutStatus.OK]
        subject = _Rollouts(own, len(played) - len(own), num_candidates)
        metrics |= _computed(f"env/{env}", _ENVIRONMENT, subject)
    candidates: dict[str, list[Candidate]] = defaultdict(list)
    for tree in usable:
        for decision in tree.decisions:
            candidates[decision.role] += decision.candidates
    for role, found in candidates.items():
        num_decisions = scored.num_decisions.get(role, 0)  # 0 for a fixed policy
        table = {**_CANDIDATES, **(_COMPARED if num_decisions else {})}
        subject = _Role(found, num_decisions, scored.num_used.get(role, 0))
        metrics |= _computed(f"role/{role}", table, subject)
    return metrics


def age_metrics(trees: Sequence[RolloutTree], step: int) -> dict[str, float]:
    """Return how old the tokens of a train step are.

    Args:
        trees: All rollouts of the step.
        step: From 0: train steps that the policies have taken when they learn from them.
    """
    num_tokens: Counter[int] = Counter()
    for decision in (decision for tree in trees for decision in tree.decisions):
        if decision.version is not None:
            for candidate in decision.candidates:
                found, age = candidate.completion, step - decision.version
                starts = (0, *found.swaps, len(found.token_ids))
                for num_swaps, (start, end) in enumerate(itertools.pairwise(starts)):
                    num_tokens[age - num_swaps] += end - start
    total = sum(age * number for age, number in num_tokens.items())
    return {
        "rollout/mean_age": total / max(num_tokens.total(), 1),
        "rollout/max_age": max(+num_tokens, default=0),
    }


def num_sampled_tokens(trees: Sequence[RolloutTree]) -> int:
    """Return how many tokens were sampled for rollouts, those of continuations included."""
    decisions = (decision for tree in trees for decision in tree.decisions)
    own = sum(len(c.completion.token_ids) for decision in decisions for c in decision.candidates)
    return own + sum(tree.num_continuation_tokens for tree in trees)


def _computed(
    prefix: str, table: Mapping[str, Metric[SubjectT]], subject: SubjectT
) -> dict[str, float]:
    return {f"{prefix}/{name}": m.of(subject) for name, m in table.items() if m.of is not None}


def _commonest(texts: Sequence[str]) -> float:
    return max(Counter(texts).values(), default=0) / max(len(texts), 1)


def _mean(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return fmean(found) if found else 0.0
