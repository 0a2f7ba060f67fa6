"""What a run achieved on held-out levels, beside scripted policies: as a table and as a curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import HEAVY_HEAD
from rich.console import Console
from rich.table import Table

from pettingllms.ends import End
from pettingllms.errors import counted
from pettingllms.tables import TextTable, fitted_table
from pettingllms.viewer.runs import variant_name
from pettingllms_trainers.runs.evaluate import is_scripted, is_untouched

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def build_report(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The report of a run as JSON data.

    Args:
        evaluations: Lines of evaluations.jsonl, oldest first; at least one.
    """
    first, last = evaluations[0], evaluations[-1]
    scripted = {n: figures for n, figures in first["variants"].items() if is_scripted(n)}
    untouched = {n.partition(":")[2]: f for n, f in first["variants"].items() if is_untouched(n)}
    return {
        "manifest": first["manifest"],
        "num_episodes": first["num_episodes"],
        "before": {"step": first["step"], "variants": untouched or _policies(first)},
        **(
            {"warm_start": {"step": first["step"], "variants": _policies(first)}}
            if untouched
            else {}
        ),
        "after": {"step": last["step"], "variants": _policies(last)},
        "scripted": scripted,
    }


def no_gain(report: Mapping[str, Any]) -> str:
    """A sentence about a run that shows no gain on held-out levels; empty if it shows one."""
    # Imitation is not what train steps gave, so they are compared with what they began from.
    before = report.get("warm_start", report["before"])["variants"]
    after = report["after"]["variants"]
    ways = [(before[n], after[n]) for n in ("greedy", "sampled") if n in before and n in after]
    steps = report["after"]["step"]
    if (
        not ways
        or not steps
        or report["before"]["step"]
        or any(one["success"] == 1 for one, _ in ways)
    ):
        return ""
    # Both were measured on the same levels; the end of the interval guards against luck.
    if any(other["success_low"] > one["success"] for one, other in ways):
        return ""
    one, other = ways[0]
    return (
        f"No gain is shown after {counted(steps, 'train step')}: {one['success']:.1%} of the "
        f"held-out levels before them and {other['success']:.1%} ({other['success_low']:.1%} to "
        f"{other['success_high']:.1%}) now. More train steps or levels may show one; the page "
        "'A run that does not learn' says what else to try."
    )


def report_table(report: Mapping[str, Any], console: Console) -> Table:
    """The report as a table for people.

    Args:
        console: Where it will be printed. If it is too narrow for figures with their intervals
            beside them, every interval is on a line of its own.
    """
    # The first evaluation may be lost; then a later one is not a state before training.
    first = report["before"]["step"]
    columns = {
        f"after train step {first}" if first else "before training": "before",
        "after warm start": "warm_start",
        "after training": "after",
    }
    columns = {heading: key for heading, key in columns.items() if key in report}
    rows: list[Sequence[str]] = []
    after: Mapping[str, Any] = report["after"]["variants"]
    for name, last in after.items():
        found = [report[key]["variants"].get(name) for key in columns.values()]
        rows.append((variant_name(name), *map(_share, found)))
        for env in last.get("environments", {}):
            own = [(figures or {}).get("environments", {}).get(env) for figures in found]
            rows.append((f"  {env}", *map(_share, own)))
    for name, figures in report["scripted"].items():
        same = ["same"] * (len(columns) - 1)
        rows.append((variant_name(name), _share(figures), *same))
        for env, own in figures.get("environments", {}).items():
            rows.append((f"  {env}", _share(own), *same))
    title = (
        f"Held-out success on {counted(report['num_episodes'], 'level')} "
        f"(manifest {report['manifest']}), 95 % Wilson intervals"
    )
    table = TextTable(["who plays", *columns], rows, title)
    return fitted_table(table, console, " (", box=HEAVY_HEAD, pad_edge=True)


def _policies(line: Mapping[str, Any]) -> dict[str, Any]:
    variants = line["variants"].items()
    return {n: figures for n, figures in variants if not (is_scripted(n) or is_untouched(n))}


def _share(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "-"
    low, high = 100 * figures["success_low"], 100 * figures["success_high"]
    share = f"{100 * figures['success']:.1f} % ({low:.1f} to {high:.1f})"
    ends = {"failed": figures["num_failed"], **figures["ends"]}
    told = [f"{ends[end]} {how}" for end, how in _ENDS.items() if ends.get(end)]
    return ", ".join([share, *told])


_ENDS = {
    "failed": "failed",
    End.CODE: "made the environment fail",
    End.CONTEXT: "outgrew the context",
    End.TIME: "took too long",
}
"""What is said of episodes that did not end by the game's own rules."""


_CURVES = {"greedy": "#1b6ca8", "sampled": "#d1495b"}
_LINES = ("--", ":", "-.")


def learning_curve(evaluations: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Draw held-out success over train steps, with 95 % intervals, and scripted policies as lines.

    Args:
        evaluations: Lines of evaluations.jsonl, oldest first.
    """
    from matplotlib.figure import Figure  # half a second, which only this needs

    figure = Figure(figsize=(7, 4.2))
    axes = figure.add_subplot()
    for name, colour in _CURVES.items():
        points = [
            (line["step"], line["variants"][name])
            for line in evaluations
            if name in line["variants"]
        ]
        if not points:
            continue
        steps = [step for step, _ in points]
        axes.plot(
            steps,
            [100 * figures["success"] for _, figures in points],
            color=colour,
            marker="o",
            markersize=3,
            label=variant_name(name),
        )
        axes.fill_between(
            steps,
            [100 * figures["success_low"] for _, figures in points],
            [100 * figures["success_high"] for _, figures in points],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
    scripted = filter(is_scripted, evaluations[0]["variants"])
    for index, name in enumerate(scripted):
        axes.axhline(
            100 * evaluations[0]["variants"][name]["success"],
            color="#666666",
            linestyle=_LINES[index % len(_LINES)],
            linewidth=1,
            label=variant_name(name),
        )
    axes.set_xlabel("train step")
    axes.set_ylabel("held-out success (%)")
    axes.set_ylim(-2, 102)
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize="small")
    return figure
