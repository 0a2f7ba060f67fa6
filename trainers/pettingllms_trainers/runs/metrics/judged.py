"""Metrics of scores beside the environment's rewards: their size, noise and use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean, pvariance

from pettingllms_trainers.rollout.judging import AGAIN, Rewards
from pettingllms_trainers.runs.metrics.metric import AnyMetric, Metric
from pettingllms_trainers.types import Candidate, RolloutTree

JUDGED: Mapping[str, AnyMetric] = {
    "judged/<reward>/score": Metric("Mean score of `rewards.NAME` over the answers of the step."),
    "judged/<reward>/noise": Metric(
        "Standard deviation of two scores of one answer around their mean, over the answers that "
        "were judged twice (`judged_twice`)."
    ),
    "judged/<reward>/reliability": Metric(
        "1 - noise² / variance of the scores: the share of their variance that is of the answers. "
        "Near 0 a comparison of answers compares noise."
    ),
    "judged/<reward>/outcome_alignment": Metric(
        "Of pairs of answers to one prompt of which one solves the task and the other does not, "
        "the share in which the score of the first is higher; equal scores count half. 0.5: the "
        "score says nothing about the outcome; missing where there is no such pair."
    ),
    "cost/<reward>/num_verdicts": Metric(
        "Verdicts that were asked for since the run began, by this process; others were kept."
    ),
    "cost/<reward>/dollars": Metric("US dollars that they cost."),
    "cost/<reward>/seconds": Metric("Seconds that they took, all together."),
}
"""Metrics of rewards, by name."""


def judged_metrics(trees: Sequence[RolloutTree]) -> dict[str, float]:
    """Return the metrics of all scores in the rollouts of a train step."""
    candidates = [c for tree in trees for decision in tree.decisions for c in decision.candidates]
    names = dict.fromkeys(name.removesuffix(AGAIN) for c in candidates for name in c.judged)
    metrics: dict[str, float] = {}
    for name in names:
        found = [c.judged[name] for c in candidates if name in c.judged]
        values = {"score": fmean(found)}
        twice = [
            (c.judged[name], c.judged[name + AGAIN]) for c in candidates if name + AGAIN in c.judged
        ]
        if twice:
            noise2 = fmean((one - other) ** 2 for one, other in twice) / 2
            values["noise"] = noise2**0.5
            if variance := pvariance(found):
                values["reliability"] = 1 - noise2 / variance
        if aligned := list(_aligned(trees, name)):
            values["outcome_alignment"] = fmean(aligned)
        metrics |= {f"judged/{name}/{figure}": value for figure, value in values.items()}
    return metrics


def cost_metrics(rewards: Rewards) -> dict[str, float]:
    """Return what scores have cost since the run began."""
    return {
        f"cost/{one.name}/{unit}": float(value)
        for one in rewards.rewards
        for unit, value in one.ledger.spent._asdict().items()
    }


def _aligned(trees: Sequence[RolloutTree], name: str) -> Iterator[float]:
    """Yield 1, 1/2 or 0 for every pair of answers to one prompt of which one solves the task."""
    prompts: dict[tuple[str, int, str], list[Candidate]] = defaultdict(list)
    for tree in trees:
        for decision in tree.decisions:
            prompts[tree.env, tree.env_seed, decision.observation] += decision.candidates
    for answers in prompts.values():
        solved = [c.judged[name] for c in answers if c.success and name in c.judged]
        others = [c.judged[name] for c in answers if not c.success and name in c.judged]
        for one, other in product(solved, others):
            yield (1 + (one > other) - (one < other)) / 2
