"""A planned fleet as tables and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.text import Text

from pettingllms.errors import counted
from pettingllms.tables import MAX_WIDTH, TextTable, terminal_table
from pettingllms_trainers.fleet.planner import HERE, FleetPlan, bottleneck
from pettingllms_trainers.fleet.simulate import StepTimes

_NUM_SHOWN = 5
_HEAD = "GPUs, generate, learn, step s, rollouts, updates, tokens/s, busy, tail, level, $"
_KEY = (
    "Seconds of a train step, its rollouts, the updates of each policy, and a level (P50/P95). "
    "busy: share of the rollouts in which engines write. tail: share with a tenth of the episodes "
    "left."
)


def fleet_view(plan: FleetPlan) -> RenderableType:
    """The plan as tables."""
    largest = plan.found[-1]
    best = min((found.steps[0] for found in plan.found), key=lambda step: step.step_s)
    low, high = plan.range_s
    shown = [*largest.steps[:_NUM_SHOWN], *largest.steps[_NUM_SHOWN:][-1:]]
    cheapest = min(plan.found, key=lambda found: plan.usd(found.num_gpus, found.steps[0]))
    usd = plan.usd(cheapest.num_gpus, cheapest.steps[0])
    return Group(
        Text(f"workload: {plan.workload}"),
        Text(
            f"engines: measured here, train steps of {low:.1f} to {high:.1f} s"
            if plan.gpu == HERE
            else f"engines: data sheet of {plan.gpu}, never measured; the fastest step takes "
            f"{low:.0f} to {high:.0f} s, with usual shares of its peak figures"
        ),
        _table(
            f"Splits of {largest.num_gpus} {plan.gpu}: {len(largest.steps)}, fastest first; the "
            "last row is the slowest",
            _HEAD,
            (_row(plan, largest.num_gpus, step) for step in shown),
        ),
        Text(_KEY),
        _table(
            "The fastest split for each number of GPUs",
            _HEAD,
            (_row(plan, found.num_gpus, found.steps[0]) for found in plan.found),
        ),
        _table(
            "Algorithms on the fastest split, with their default parameters",
            "algorithm, step s, rollouts, tokens of a step, tokens/s, busy, tail",
            (
                (
                    name,
                    _seconds(step.step_s),
                    _seconds(step.rollouts.seconds),
                    f"{step.rollouts.num_completion_tokens:,}",
                    _rate(step),
                    _busy(step),
                    f"{step.rollouts.tail:.0%}",
                )
                for name, step in plan.algorithms.items()
            ),
        ),
        Text(f"fastest: {_name(best, plan)}; it waits for {bottleneck(best)}"),
        Text(
            f"age of its tokens in training: {best.rollouts.age:.1f} updates; episodes given up: "
            f"{best.rollouts.stale:.1%}"
        ),
        Text(
            f"cheapest number of GPUs: {cheapest.num_gpus}, "
            f"{_name(cheapest.steps[0], plan)}; ${usd:,.0f} for "
            f"{counted(plan.num_steps, 'train step')}"
        ),
    )


def fleet_json(plan: FleetPlan) -> dict[str, Any]:
    """The plan as plain values; seconds, tokens and US dollars."""
    return {
        "workload": plan.workload,
        "models": list(plan.models),
        "gpu": plan.gpu,
        "usd_per_hour": plan.usd_per_hour,
        "num_steps": plan.num_steps,
        "step_s_range": list(plan.range_s),
        "fleets": [
            {"num_gpus": found.num_gpus, **_values(step), "usd": plan.usd(found.num_gpus, step)}
            for found in plan.found
            for step in found.steps
        ],
        "algorithms": {name: _values(step) for name, step in plan.algorithms.items()},
    }


def _row(plan: FleetPlan, num_gpus: int, step: StepTimes) -> Sequence[str]:
    fleet, rollouts = step.fleet, step.rollouts
    shared = f"{fleet.num_shared} shared"
    learn = "/".join(map(str, fleet.learn)) or "same"
    median, high = rollouts.level_s
    return (
        str(num_gpus),
        shared if fleet.num_shared else "/".join(map(str, fleet.generate)),
        learn,
        _seconds(step.step_s),
        _seconds(rollouts.seconds),
        "/".join(map(_seconds, step.update_s.values())),
        _rate(step),
        _busy(step),
        f"{rollouts.tail:.0%}",
        f"{_seconds(median)}/{_seconds(high)}",
        f"{plan.usd(num_gpus, step):,.0f}",
    )


def _rate(step: StepTimes) -> str:
    rate = step.rollouts.num_completion_tokens / step.step_s
    return f"{rate / 1000:,.1f}k" if rate >= 1000 else f"{rate:.0f}"


def _seconds(seconds: float) -> str:
    if seconds < 0.01:
        return "<0.01"
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def _busy(step: StepTimes) -> str:
    return "/".join(f"{share:.0%}" for share in step.rollouts.busy.values())


def _name(step: StepTimes, plan: FleetPlan) -> str:
    fleet, parts = step.fleet, list[str]()
    if fleet.num_shared:
        return f"{fleet.num_shared} shared"
    learn = dict(zip(step.update_s, fleet.learn, strict=False))  # empty where who writes learns
    for names, num in zip(plan.models, fleet.generate, strict=True):
        base = names.partition(", ")[0]
        learns = f"{learn[base]} learn" if base in learn else "then learn"
        parts.append(f"{names}: {num} write" + f", {learns}" * (base in step.update_s))
    return "; ".join(parts)


def _values(step: StepTimes) -> dict[str, Any]:
    parts = {"fleet": step.fleet._asdict(), "rollouts": step.rollouts._asdict()}
    return step._asdict() | parts | {"waits_for": bottleneck(step)}


def _table(title: str, head: str, rows: Iterator[Sequence[str]]) -> RenderableType:
    # Folded and never cut: half a heading says nothing.
    return terminal_table(TextTable(head.split(", "), list(rows), title), box=SIMPLE, padding=0)


def show_fleet(plan: FleetPlan, *, is_json: bool) -> None:
    """Print a planned fleet, as tables or as JSON."""
    if is_json:
        sys.stdout.write(f"{json.dumps(fleet_json(plan), indent=2)}\n")
    else:
        Console(width=None if sys.stdout.isatty() else MAX_WIDTH).print(fleet_view(plan))
