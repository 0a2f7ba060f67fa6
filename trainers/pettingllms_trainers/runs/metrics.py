"""Metrics of a run: what each name means, and how it is computed from a train step.

Every name that is logged stands in `METRICS`; METRICS.md shows the same table to people. Parts in
angle brackets stand for a role, a policy or an arm of the evaluation.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from pettingllms_trainers.algorithm.groups import ScoredDecisions
from pettingllms_trainers.errors import TrainerError
from pettingllms_trainers.types import RolloutStatus, RolloutTree, UpdateStats

__all__ = [
    "METRICS",
    "checked",
    "is_timing",
    "num_sampled_tokens",
    "rollout_metrics",
    "template_of",
    "timing_metrics",
    "update_metrics",
]

METRICS: Mapping[str, str] = {
    "rollout/num_trees": "Rollouts of the step that can be used.",
    "rollout/num_failed_trees": "Rollouts left out because generation or the environment failed.",
    "rollout/num_failed_candidates": "Candidates left out because generation failed.",
    "rollout/num_fixed_actions": "Actions of fixed policies: one per decision, not compared and "
    "not trained.",
    "rollout/num_refills": "Rounds of further levels, played because a policy had too few groups "
    "whose rewards differ.",
    "rollout/success": "Share of rollouts whose followed path solves the task. With a greedy "
    "branch choice this is best-of-K, not a learning curve.",
    "rollout/num_turns": "Mean number of turns of a rollout.",
    "rollout/num_completion_tokens": "Sampled tokens of the step.",
    "role/<role>/reward": "Mean reward of the role's candidates, alpha * team + local.",
    "role/<role>/team": "Mean team part of that reward, alpha included.",
    "role/<role>/local": "Mean local part of that reward.",
    "role/<role>/parse_errors": "Share of the role's candidates that could not be read.",
    "role/<role>/truncated": "Share of the role's candidates that reached the token limit.",
    "role/<role>/num_tokens": "Mean tokens of the role's candidates.",
    "role/<role>/num_decisions": "Groups of the role.",
    "role/<role>/decisions_used": "Share of the role's groups whose rewards differ; the others are "
    "dropped.",
    "loss/<policy>/loss": "Loss that is minimised, all terms included.",
    "loss/<policy>/policy_loss": "Clipped surrogate part of the loss.",
    "loss/<policy>/entropy": "Mean entropy of the next-token distribution, in nats.",
    "loss/<policy>/ratio_mean": "Mean importance ratio of trained tokens.",
    "loss/<policy>/ratio_max": "Largest importance ratio.",
    "loss/<policy>/first_ratio_error": "Largest distance of a ratio from 1 in the "
    "mini-batch of the first optimizer step: engine against trainer, unless recomputed.",
    "loss/<policy>/engine_gap_mean": "Mean distance of the engine's log-probabilities of sampled "
    "tokens from the trainer's, in nats; 0 where they are not recomputed.",
    "loss/<policy>/engine_gap_max": "Largest such distance.",
    "loss/<policy>/clip_fraction": "Share of tokens whose gradient was cut by the clip.",
    "loss/<policy>/kl": "Estimated KL divergence to the reference policy.",
    "loss/<policy>/approx_kl": "Estimated KL divergence of the new from the sampling policy.",
    "loss/<policy>/grad_norm": "Mean gradient norm before clipping.",
    "loss/<policy>/learning_rate": "Learning rate of the last optimizer step.",
    "update/<policy>/num_groups": "Groups the policy was trained on.",
    "update/<policy>/num_completions": "Completions the policy was trained on.",
    "update/<policy>/num_tokens": "Sampled tokens that carried a gradient.",
    "update/<policy>/num_optimizer_steps": "Optimizer steps.",
    "update/<policy>/skipped": "1 when the policy had nothing to train on in this step, else 0.",
    "warm_start/<policy>/loss": "Mean loss of the last 10 supervised steps, in nats per token.",
    "eval/<arm>/success": "Share of held-out levels that are solved, one sample per decision.",
    "eval/<arm>/success_low": "Lower end of its 95 % Wilson interval.",
    "eval/<arm>/success_high": "Upper end of its 95 % Wilson interval.",
    "eval/<arm>/num_turns": "Mean number of turns of held-out episodes.",
    "eval/<arm>/num_failed": "Held-out rollouts in which generation or the environment failed; "
    "they count as not solved.",
    "eval/<arm>/<role>/reward": "Mean reward of the role's actions on held-out levels.",
    "eval/<arm>/<role>/parse_errors": "Share of its held-out actions that could not be read.",
    "time/rollout_s": "Wall time of the rollouts.",
    "time/generate_s": "Time in which engines generated, added up over policies; the rest of the "
    "rollouts may overlap with it.",
    "time/update_s": "Wall time of the updates.",
    "time/sync_s": "Wall time of moving new weights to the engines.",
    "time/evaluate_s": "Wall time of the held-out evaluation.",
    "time/step_s": "Wall time of the train step without evaluation.",
    "throughput/sampled_tokens_per_s": "Sampled tokens per second of generation.",
    "throughput/trained_tokens_per_s": "Trained tokens per second of update.",
}

_STATS = {
    "loss": (
        "loss",
        "policy_loss",
        "entropy",
        "ratio_mean",
        "ratio_max",
        "first_ratio_error",
        "engine_gap_mean",
        "engine_gap_max",
        "clip_fraction",
        "kl",
        "approx_kl",
        "grad_norm",
        "learning_rate",
    ),
    "update": ("num_groups", "num_completions", "num_tokens", "num_optimizer_steps"),
}
_PATTERNS = {name: re.compile(re.sub(r"<\w+>", "[^/]+", name)) for name in METRICS}


def template_of(name: str) -> str | None:
    """Return the entry of `METRICS` that describes a metric; None when there is none."""
    return next((key for key, pattern in _PATTERNS.items() if pattern.fullmatch(name)), None)


def is_timing(name: str) -> bool:
    """Return whether a metric depends on the machine's speed, not on the run's seed."""
    return name.startswith(("time/", "throughput/"))


def checked(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics when all are documented and finite.

    Raises:
        TrainerError: A value is not finite: training has diverged.
        KeyError: A name is not in `METRICS`.
    """
    for name, value in metrics.items():
        if template_of(name) is None:
            raise KeyError(f"the metric {name!r} is not documented in METRICS")
        if not math.isfinite(value):
            raise TrainerError(
                f"{name} is {value}: training has diverged. Lower optimizer.learning_rate, or "
                "resume from a checkpoint before this step with another seed"
            )
    return dict(metrics)


def rollout_metrics(
    trees: Sequence[RolloutTree], scored: ScoredDecisions, num_candidates: int
) -> dict[str, float]:
    """Return the metrics of the rollouts of a train step.

    Args:
        trees: All rollouts of the step.
        scored: Their groups.
        num_candidates: Candidates that were asked for per decision.
    """
    usable = [tree for tree in trees if tree.status is RolloutStatus.OK]
    decisions = [decision for tree in usable for decision in tree.decisions]
    sampled = [decision for decision in decisions if decision.prompt_ids]
    outcomes = [tree.outcome for tree in usable if tree.outcome is not None]
    metrics: dict[str, float] = {
        "rollout/num_trees": len(usable),
        "rollout/num_failed_trees": len(trees) - len(usable),
        "rollout/num_failed_candidates": sum(num_candidates - len(n.candidates) for n in sampled),
        "rollout/num_fixed_actions": len(decisions) - len(sampled),
        "rollout/success": _mean(outcome.success for outcome in outcomes),
        "rollout/num_turns": _mean(outcome.num_turns for outcome in outcomes),
        "rollout/num_completion_tokens": num_sampled_tokens(trees),
    }
    candidates = defaultdict(list)
    for decision in decisions:
        candidates[decision.role] += decision.candidates
    for role, found in candidates.items():
        values = {
            "reward": _mean(c.reward for c in found),
            "team": _mean(c.team for c in found),
            "local": _mean(c.local for c in found),
            "parse_errors": _mean(c.parse_error is not None for c in found),
            "truncated": _mean(c.completion.finish_reason == "length" for c in found),
        }
        if role in scored.num_decisions:  # not of a fixed policy
            values |= {
                "num_tokens": _mean(len(c.completion.token_ids) for c in found),
                "num_decisions": scored.num_decisions[role],
                "decisions_used": scored.num_used.get(role, 0) / scored.num_decisions[role],
            }
        metrics |= {f"role/{role}/{name}": value for name, value in values.items()}
    return metrics


def num_sampled_tokens(trees: Sequence[RolloutTree]) -> int:
    """Return the number of tokens that were sampled for some rollouts."""
    return sum(
        len(candidate.completion.token_ids)
        for tree in trees
        for decision in tree.decisions
        for candidate in decision.candidates
    )


def update_metrics(stats: Mapping[str, UpdateStats]) -> dict[str, float]:
    """Return the metrics of the updates of a train step, by policy name."""
    metrics: dict[str, float] = {}
    for policy, values in stats.items():
        is_skipped = values.skipped is not None
        metrics[f"update/{policy}/skipped"] = float(is_skipped)
        for section, names in _STATS.items():
            if section == "update" or not is_skipped:
                metrics |= {f"{section}/{policy}/{name}": getattr(values, name) for name in names}
    return metrics


def timing_metrics(
    trees: Sequence[RolloutTree],
    stats: Mapping[str, UpdateStats],
    *,
    generate_s: float,
    update_s: float,
) -> dict[str, float]:
    """Return times and throughputs of a train step.

    Args:
        trees: All rollouts of the step.
        stats: Statistics of the updates.
        generate_s: Wall time spent in the engines.
        update_s: Wall time of the updates.
    """
    num_trained_tokens = sum(values.num_tokens for values in stats.values())
    return {
        "time/generate_s": generate_s,
        "time/update_s": update_s,
        "throughput/sampled_tokens_per_s": _rate(num_sampled_tokens(trees), generate_s),
        "throughput/trained_tokens_per_s": _rate(num_trained_tokens, update_s),
    }


def _rate(number: int, seconds: float) -> float:
    return number / seconds if seconds else 0.0


def _mean(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return fmean(found) if found else 0.0
