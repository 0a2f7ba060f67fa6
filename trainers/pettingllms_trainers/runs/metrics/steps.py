"""Metrics of a train step apart from its rollouts: phases, stages, updates, fits of V, times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.roles import qualified
from pettingllms_trainers.rollout.sampler import Records
from pettingllms_trainers.runs.metrics.metric import AnyMetric, Metric
from pettingllms_trainers.runs.metrics.rollouts import num_sampled_tokens
from pettingllms_trainers.types import STATS_FIELDS, RolloutTree, Shown, UpdateStats, ValueFit

_UPDATE = ("num_groups", "num_completions", "num_tokens", "num_optimizer_steps", "skipped")


def _stats_metrics() -> dict[str, AnyMetric]:
    """Return the metrics that are fields of `UpdateStats`, documented there."""
    metrics: dict[str, AnyMetric] = {}
    for name, field in STATS_FIELDS.items():
        section = "update" if name in _UPDATE else "loss"
        shown = next((marker for marker in field.metadata if isinstance(marker, Shown)), None)
        doc = " ".join((field.description or "").split())
        metrics[f"{section}/<policy>/{name}"] = Metric(doc, shown=shown)
    return metrics


STATS: Mapping[str, AnyMetric] = _stats_metrics()
"""Metrics of the updates, by name."""


def phase_metrics(config: Config, step: int) -> dict[str, float]:
    """Return which phase of the updates a train step, from 0, is in, if there are phases."""
    updates = config.updates
    return {"update/phase": 1.0 + updates.phase_at(step)} if updates.phases else {}


def curriculum_metrics(trees: Sequence[RolloutTree], records: Records) -> dict[str, float]:
    """Return how much the stages of curricula were played, and how well.

    Args:
        trees: All rollouts of the step.
        records: Of the stages, by environment, after the step.
    """
    metrics: dict[str, float] = {}
    for env, stages in records.items():
        played = Counter(tree.stage for tree in trees if tree.env == env)
        for stage, record in enumerate(stages) if len(stages) > 1 else ():
            prefix = f"curriculum/{qualified(env, str(stage + 1))}"
            metrics[f"{prefix}/share"] = played[stage] / max(played.total(), 1)
            metrics[f"{prefix}/success"] = record.success
    return metrics


def update_metrics(stats: Mapping[str, UpdateStats]) -> dict[str, float]:
    """Return the metrics of the updates of a train step, by policy name."""
    metrics: dict[str, float] = {}
    for policy, values in stats.items():
        for found in values.role_gradients:
            prefix = f"gradient/{policy}/{found.role}"
            metrics |= {f"{prefix}/norm": found.norm, f"{prefix}/share": found.share}
            metrics |= {
                f"{prefix}/{other}/cosine": cosine
                for other, cosine in found.cosines.items()
                if found.role < other
            }
        for name in STATS_FIELDS:
            if name == "skipped":
                metrics[f"update/{policy}/skipped"] = float(values.skipped is not None)
            elif name in _UPDATE:
                metrics[f"update/{policy}/{name}"] = getattr(values, name)
            elif values.skipped is None:  # else there was no loss, and 0 would be made up
                metrics[f"loss/{policy}/{name}"] = getattr(values, name)
    return metrics


def value_metrics(fits: Mapping[str, ValueFit]) -> dict[str, float]:
    """Return the metrics of the fits of V of a train step, by policy name."""
    return {
        f"value/{policy}/{name}": float(value)
        for policy, fit in fits.items()
        for name, value in fit._asdict().items()
    }


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
    return {
        "time/generate_s": generate_s,
        "time/update_s": update_s,
        "throughput/sampled_tokens_per_s": _rate(num_sampled_tokens(trees), generate_s),
        "throughput/trained_tokens_per_s": _rate(
            sum(values.num_tokens for values in stats.values()), update_s
        ),
    }


def _rate(number: int, seconds: float) -> float:
    return number / seconds if seconds else 0.0
