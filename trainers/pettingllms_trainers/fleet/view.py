"""A planned fleet as tables and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.text import Text

from pettingllms.errors import counted
from pettingllms.tables import MAX_WIDTH, TextTable, terminal_table
from pettingllms_trainers.fleet.planner import FleetPlan, bottleneck
from pettingllms_trainers.fleet.simulate import StepTimes

_NUM_SHOWN = 5
_HEAD = "GPUs, generate, learn, step s, rollouts, updates, tokens/s, busy, tail, hours, $"
_KEY = (
    "Seconds of a train step, its rollouts, and the updates of each policy; hours and price of the "
    "run. busy: share of the rollouts in which engines write. tail: share with a tenth of the "
    "episodes left."
)


def fleet_view(plan: FleetPlan) -> RenderableType:
    """The plan as tables."""
    fastest = {num: steps[0] for num, steps in plan.found.items()}
    num, steps = next(iter(plan.found.items()))
    best = min(fastest, key=lambda number: fastest[number].step_s)
    cheapest = min(fastest, key=lambda number: plan.usd(number, fastest[number]))
    low, high = plan.range_s
    shown = [(num, step) for step in (*steps[:_NUM_SHOWN], *steps[_NUM_SHOWN:][-1:])]
    return Group(
        Text(f"workload: {plan.workload}"),
        Text(
            f"engines: data sheet of {plan.gpu}, never measured; the fastest step takes {low:.0f} "
            f"to {high:.0f} s, with usual shares of its peak figures"
        ),
        _table(
            f"Splits of {num} {plan.gpu}: {len(steps)}, fastest first; the last row is the slowest",
            plan,
            shown,
        ),
        Text(_KEY),
        _table("The fastest split for each number of GPUs", plan, [*fastest.items()]),
        Text(
            f"fastest: {_name(fastest[best], plan)}; it waits for {bottleneck(fastest[best])}\n"
            f"cheapest number of GPUs: {cheapest}, {_name(fastest[cheapest], plan)}; "
            f"${plan.usd(cheapest, fastest[cheapest]):,.0f} for "
            f"{counted(plan.num_steps, 'train step')}"
        ),
    )


def fleet_json(plan: FleetPlan) -> dict[str, Any]:
    """The plan as plain values; seconds, hours, tokens and US dollars."""
    return plan._asdict() | {
        "found": [
            {
                **step._asdict(),
                "num_gpus": num,
                "fleet": step.fleet._asdict(),
                "rollouts": step.rollouts._asdict(),
                "waits_for": bottleneck(step),
                "hours": plan.hours(step),
                "usd": plan.usd(num, step),
            }
            for num, steps in plan.found.items()
            for step in steps
        ]
    }


def _row(plan: FleetPlan, num_gpus: int, step: StepTimes) -> list[str]:
    fleet, rollouts = step.fleet, step.rollouts
    rate = rollouts.num_completion_tokens / step.step_s
    return [
        str(num_gpus),
        "/".join(map(str, fleet.generate)) or f"{fleet.num_shared} shared",
        "/".join(map(str, fleet.learn)) or "same",
        _number(step.step_s),
        _number(rollouts.seconds),
        "/".join(map(_number, step.update_s.values())),
        f"{rate / 1000:,.1f}k" if rate >= 1000 else f"{rate:.0f}",
        "/".join(f"{share:.0%}" for share in rollouts.busy.values()),
        f"{rollouts.tail:.0%}",
        _number(plan.hours(step)),
        f"{plan.usd(num_gpus, step):,.0f}",
    ]


def _number(value: float) -> str:
    if value < 0.01:
        return "<0.01"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _name(step: StepTimes, plan: FleetPlan) -> str:
    return "; ".join(_parts(step, plan))


def _parts(step: StepTimes, plan: FleetPlan) -> Iterator[str]:
    fleet = step.fleet
    if fleet.num_shared:
        yield f"{fleet.num_shared} shared"
    learn = dict(zip(step.update_s, fleet.learn, strict=False))  # empty where who writes learns
    for names, num in zip(plan.models, fleet.generate, strict=False):  # empty where shared
        base = names.partition(", ")[0]
        learns = f"{learn[base]} learn" if base in learn else "then learn"
        yield f"{names}: {num} write" + f", {learns}" * (base in step.update_s)


def _table(title: str, plan: FleetPlan, steps: list[tuple[int, StepTimes]]) -> RenderableType:
    rows = [_row(plan, num, step) for num, step in steps]
    # Folded and never cut: half a heading says nothing.
    return terminal_table(TextTable(_HEAD.split(", "), rows, title), box=SIMPLE, padding=0)


def show_fleet(plan: FleetPlan, *, is_json: bool) -> None:
    """Print a planned fleet, as tables or as JSON."""
    if is_json:
        sys.stdout.write(f"{json.dumps(fleet_json(plan), indent=2)}\n")
    else:
        Console(width=None if sys.stdout.isatty() else MAX_WIDTH).print(fleet_view(plan))
