"""Metrics of a run: each is declared once, with its documentation and how it is computed.

`METRICS`, the progress view and the table in METRICS.md are made from these declarations:
``python -m pettingllms_trainers.runs.metrics trainers/METRICS.md`` writes the table. Parts in angle
brackets stand for a role, a policy, a variant of the evaluation, a stage or one of several
environments.
"""

from pettingllms_trainers.runs.metrics.judged import cost_metrics, judged_metrics
from pettingllms_trainers.runs.metrics.rollouts import age_metrics, rollout_metrics
from pettingllms_trainers.runs.metrics.steps import (
    curriculum_metrics,
    phase_metrics,
    timing_metrics,
    update_metrics,
    value_metrics,
)
from pettingllms_trainers.runs.metrics.table import (
    METRICS,
    checked,
    is_timing,
    metrics_table,
    template_of,
)

__all__ = [
    "METRICS",
    "age_metrics",
    "checked",
    "cost_metrics",
    "curriculum_metrics",
    "is_timing",
    "judged_metrics",
    "metrics_table",
    "phase_metrics",
    "rollout_metrics",
    "template_of",
    "timing_metrics",
    "update_metrics",
    "value_metrics",
]
