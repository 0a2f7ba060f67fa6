"""All metrics by name, their table in METRICS.md, and the check of what is logged."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from pettingllms_trainers.errors import TrainerError
from pettingllms_trainers.runs.metrics.judged import JUDGED
from pettingllms_trainers.runs.metrics.metric import AnyMetric, Metric
from pettingllms_trainers.runs.metrics.rollouts import ROLLOUTS
from pettingllms_trainers.runs.metrics.steps import STATS
from pettingllms_trainers.types import Shown

_ELSEWHERE = {
    "gradient/<policy>/<role>/norm": Metric(
        "With `optimizer.role_gradients`: mean norm of the role's part of the gradient of a shared "
        "policy, before clipping."
    ),
    "gradient/<policy>/<role>/share": Metric(
        "Inner product of that part with the whole gradient, over the squared norm of the whole. "
        "Shares add up to 1; below 0 the update harms the role, to first order."
    ),
    "gradient/<policy>/<role>/<role>/cosine": Metric(
        "Mean cosine between the parts of two roles; below 0 they pull the policy apart."
    ),
    "update/phase": Metric(
        "Phase of `updates.phases`, from 1; a policy that it does not update has no metrics of an "
        "update or a loss in the step.",
        shown=Shown("phase", ".0f"),
    ),
    "curriculum/<stage>/share": Metric(
        "Share of the rollouts that played a stage of `env.curriculum`, which are numbered from 1; "
        "`ENV.NUMBER` in a run of several environments."
    ),
    "curriculum/<stage>/success": Metric(
        "Estimate of the share of its rollouts that are solved; later train steps weigh more."
    ),
    "algorithm/<role>/lead_z": Metric(
        "With `lockstep`: by how many standard errors it is shown that episodes which have earned "
        "more so far are solved more often. Above 2, and while hardly anything is solved, the "
        "others continue from the best; otherwise success alone counts, as in the first train "
        "step. Absent as long as no level was both solved and failed, or nobody led."
    ),
    "warm_start/<policy>/loss": Metric(
        "Mean loss of the last 10 supervised steps, in nats per token."
    ),
    "eval/<variant>/success": Metric(
        "Share of held-out levels that are solved, one sample per decision.",
        shown=Shown("held-out", ".1%"),
    ),
    "eval/<variant>/<env>/success": Metric(
        "Of the levels of one environment, in a run of several; so are the next four.",
        shown=Shown("held-out", ".1%"),
    ),
    "eval/<variant>/<env>/success_low": Metric("Lower end of its 95 % Wilson interval."),
    "eval/<variant>/<env>/success_high": Metric("Upper end of its 95 % Wilson interval."),
    "eval/<variant>/<env>/num_turns": Metric("Mean number of turns of its held-out episodes."),
    "eval/<variant>/<env>/num_failed": Metric("Its held-out rollouts that failed."),
    "eval/<variant>/success_low": Metric("Lower end of its 95 % Wilson interval."),
    "eval/<variant>/success_high": Metric("Upper end of its 95 % Wilson interval."),
    "eval/<variant>/num_turns": Metric("Mean number of turns of held-out episodes."),
    "eval/<variant>/num_failed": Metric(
        "Held-out rollouts in which generation or the environment failed; they count as not solved."
    ),
    "eval/<variant>/<role>/reward": Metric("Mean reward of the role's actions on held-out levels."),
    "eval/<variant>/<role>/parse_errors": Metric(
        "Share of its held-out actions that could not be read."
    ),
    "value/<policy>/num_examples": Metric("Decisions that V was fitted to in the step."),
    "value/<policy>/target": Metric("Mean return that V was to predict for them."),
    "value/<policy>/r2": Metric(
        "Share of the variance of these returns that V predicted before it had seen them."
    ),
    "value/<policy>/loss": Metric("Mean squared error of V in the last pass of its fit."),
    "time/value_s": Metric("Wall time in which V was evaluated during the rollouts."),
    "time/fit_value_s": Metric("Wall time of the fits of V."),
    "time/rollout_s": Metric(
        "Wall time in which the rollouts were in flight, also beside updates."
    ),
    "time/wait_s": Metric("Wall time of the train step in which policies waited for rollouts."),
    "time/generate_s": Metric(
        "Time in which engines generated, added up over policies; the rest of the rollouts may "
        "overlap with it."
    ),
    "time/update_s": Metric("Wall time of the updates."),
    "time/sync_s": Metric("Wall time of moving new weights to the engines."),
    "time/evaluate_s": Metric("Wall time of the held-out evaluation."),
    "time/step_s": Metric("Wall time of the train step without evaluation."),
    "throughput/sampled_tokens_per_s": Metric(
        "Sampled tokens per second of generation.", shown=Shown("tokens/s", ",.0f")
    ),
    "throughput/trained_tokens_per_s": Metric("Trained tokens per second of update."),
}

METRICS: Mapping[str, AnyMetric] = {
    **ROLLOUTS,
    **JUDGED,
    **STATS,
    **_ELSEWHERE,
}
"""Every metric that a run may log, by its name."""

_PATTERNS = {name: re.compile(re.sub(r"<\w+>", "[^/]+", name)) for name in METRICS}


def template_of(name: str) -> str | None:
    """Return the entry of `METRICS` that describes a metric; None when there is none."""
    return next((key for key, pattern in _PATTERNS.items() if pattern.fullmatch(name)), None)


def metrics_table() -> str:
    """Return the table of METRICS.md."""
    rows = [f"| `{name}` | {metric.doc} |" for name, metric in METRICS.items()]
    return "\n".join(["| name | meaning |", "| --- | --- |", *rows])


def is_timing(name: str) -> bool:
    """Return whether a metric depends on the machine or on interruptions, not on the seed."""
    return name.startswith(("time/", "throughput/", "cost/"))


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
