"""Reports as headings, paragraphs and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.evaluation.plan import EvaluationPlan
from pettingllms.evaluation.report import Comparison, Report, VariantReport
from pettingllms.evaluation.sides import Side
from pettingllms.evaluation.statistics import Interval
from pettingllms.policies import Usage
from pettingllms.tables import Block, TextTable


def report_parts(report: Report) -> list[Block]:
    """The figures of an evaluation."""
    plan = report.plan
    arguments = ", ".join(f"{key}={value!r}" for key, value in plan.env_kwargs.items())
    setting = f"Arguments: {arguments or 'none'}. "
    setting += f"Seed {plan.seed}, {plan.num_levels} levels, {plan.num_samples} plays each."
    if plan.num_wanted is not None:
        setting += f" {pool_note(plan)}"
    parts: list[Block] = [f"# Evaluation of {plan.env_id}", setting]
    if not report.is_complete:
        parts.append("Incomplete: figures are of the finished episodes only.")
    for name, variant in report.variants.items():
        figures = TextTable(["", "figure [95 % interval]"], variant_rows(variant))
        parts += [f"## {name}", figures, TextTable(ROLE_HEAD, role_rows(variant))]
    return parts


def comparison_parts(comparison: Comparison, first: str, second: str) -> list[Block]:
    """A comparison of two variants."""
    shares = map(share, (comparison.first_success, comparison.second_success))
    rows = [["success", *shares, share_difference(comparison.success.difference)]]
    rows += [
        [name, number(found.first), number(found.second), mean(found.difference, sign="+")]
        for name, found in comparison.figures.items()
    ]
    head = ["", first, second, "difference [95 % interval]"]
    return [TextTable(head, rows), comparison_note(comparison)]


def sides_parts(first: Side, second: Side, differing: Mapping[str, tuple[Any, Any]]) -> list[Block]:
    """Who played on two sides, and which settings differ."""
    policies = first.policies, second.policies
    roles = dict.fromkeys([*policies[0], *policies[1]])
    played = [(role, *(own.get(role, "-") for own in policies)) for role in roles]
    parts: list[Block] = [TextTable(["who played", first.name, second.name], played)]
    if differing:
        rows = [(key, *map(_value, values)) for key, values in differing.items()]
        parts.append(TextTable(["differs", first.name, second.name], rows))
    return parts


def _value(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def comparison_note(comparison: Comparison) -> str:
    """In one sentence on what a comparison rests."""
    if not comparison.is_paired:
        return (
            f"Not paired: {comparison.num_only_first} levels of the first, "
            f"{comparison.num_only_second} of the second. Evaluations (pettingllms eval --run) on "
            "the same levels are compared level by level."
        )
    note = (
        f"{comparison.num_levels} common levels: the second is better on {comparison.num_better}, "
        f"worse on {comparison.num_worse} (sign test p = {comparison.p_value:.3g})."
    )
    if comparison.num_only_first or comparison.num_only_second:
        note += (
            f" Not compared: {comparison.num_only_first} levels that only the first played, "
            f"{comparison.num_only_second} that only the second played."
        )
    return note


_REPEATED = "levels repeat: play more that differ; intervals count only those"


def pool_note(plan: EvaluationPlan) -> str:
    """In one sentence that an environment has fewer levels than were asked for."""
    return (
        f"No more than these {plan.num_levels} of the {plan.num_wanted} levels asked for differ up "
        "to symmetry; each is drawn once."
    )


def variant_rows(variant: VariantReport) -> list[tuple[str, str]]:
    """The figures of a variant as (name, text)."""
    episodes = f"{variant.num_episodes} of {variant.num_expected}"
    levels = f"{variant.num_levels} levels, {variant.num_distinct_levels} different"
    repeated = "" if variant.num_distinct_levels == variant.num_levels else _REPEATED
    rows = [
        ("success", share(variant.success) + f", {variant.num_success} solved"),
        *[(f"pass@{k}", share(value)) for k, value in variant.pass_at_k.items() if k > 1],
        ("episodes", f"{episodes} ({levels})"),
        *([("warning", repeated)] if repeated else []),
        ("out of turns", str(variant.num_truncated)),
        ("turns", mean(variant.num_turns)),
        *[(f"return of {agent}", mean(value)) for agent, value in variant.returns.items()],
        ("manifest", variant.manifest),
    ]
    return [*rows, *_bill_rows(variant)]


def _bill_rows(variant: VariantReport) -> list[tuple[str, str]]:
    """What was spent, and how much of it went into finished episodes."""
    roles = variant.roles.values()
    spent = sum((role.spent for role in roles), Usage())
    used = sum((role.usage for role in roles), Usage())
    if not spent.num_requests:
        return []
    rows = [("tokens spent", tokens(spent))]
    # Only where attempts were lost: otherwise two rows would say the same.
    if spent != used:
        rows.append(("of finished episodes", tokens(used)))
    priced = [role for role in roles if role.has_price]
    if priced:
        rows.append(("cost", _dollars([role.spent_usd for role in priced])))
        if spent != used:
            rows.append(("of finished episodes", _dollars([role.cost_usd for role in priced])))
    served = sorted({name for role in roles for name in role.models})
    return [*rows, ("models that answered", ", ".join(served))] if served else rows


def tokens(usage: Usage) -> str:
    """Tokens in words; what a server did not report is not counted as 0."""
    if usage.num_unknown == usage.num_requests:
        return f"unknown: no usage reported for {usage.num_requests:,} answers"
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    hidden = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    text = f"{usage.prompt_tokens:,} in{cached}, {usage.completion_tokens:,} out{hidden}"
    if usage.num_unknown:
        text = f"at least {text}; no usage reported for {usage.num_unknown:,} answers"
    return text


def _dollars(costs: Sequence[float | None]) -> str:
    known = [cost for cost in costs if cost is not None]
    return f"{math.fsum(known):.4g} US dollars" if len(known) == len(costs) else "unknown"


# Column heads of `role_rows`.
ROLE_HEAD = (
    "role", "policy", "actions", "own reward", "unreadable", "truncated", "tokens in", "out"
)  # fmt: skip


def role_rows(variant: VariantReport) -> list[tuple[str, ...]]:
    """One row per role of a variant, under `ROLE_HEAD`."""
    return [
        (
            name,
            role.policy,
            f"{role.num_actions:,}",
            mean(role.reward),
            share(role.parse_errors),
            f"{role.cut:.1%}",
            *_counts(role.usage),
        )
        for name, role in variant.roles.items()
    ]


def _counts(usage: Usage) -> tuple[str, str]:
    if usage.num_unknown:
        return "unknown", "unknown"
    return f"{usage.prompt_tokens:,}", f"{usage.completion_tokens:,}"


def share(value: Interval) -> str:
    """A share with its interval, in percent."""
    return f"{value.value:.1%} [{value.low:.1%}, {value.high:.1%}]"


def share_difference(value: Interval) -> str:
    """A difference of shares with its interval, in points of percent."""
    return f"{100 * value.value:+.1f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}] points"


def mean(value: Interval, sign: str = "") -> str:
    """A mean with its interval, if it has one."""
    text = number(value.value, sign)
    if not math.isfinite(value.low):
        return text
    return f"{text} [{number(value.low, sign)}, {number(value.high, sign)}]"


def number(value: float, sign: str = "") -> str:
    """A number with three decimals at most."""
    text = f"{value:{sign},.3f}"
    return text.rstrip("0").rstrip(".")
