"""What a run achieved: held-out figures before and after training, beside scripted policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from pettingllms_trainers.runs.evaluate import is_scripted, is_untouched

_UNLIMITED = 1000


def build_report(
    evaluations: Sequence[Mapping[str, Any]], final_variants: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the report of a run as JSON data.

    Args:
        evaluations: Lines of evaluations.jsonl, oldest first; at least one.
        final_variants: Variants that were played after training only.
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
        "after": {"step": last["step"], "variants": {**_policies(last), **final_variants}},
        "scripted": scripted,
    }


def no_gain(report: Mapping[str, Any]) -> str:
    """Return a sentence about a run that shows no gain on held-out levels, empty if it shows one.

    Args:
        report: As `build_report` returns it.
    """
    before = report.get("warm_start", report["before"])["variants"]
    after = report["after"]["variants"]
    name = next((name for name in ("greedy", "sampled") if name in before and name in after), "")
    if not name or before[name]["success"] == 1:
        return ""
    one, other = before[name], after[name]
    if other["success_low"] > one["success"]:
        return ""
    steps = report["after"]["step"]
    return (
        f"No gain is shown after {steps} train steps: {one['success']:.1%} of the held-out levels "
        f"before and {other['success']:.1%} ({other['success_low']:.1%} to "
        f"{other['success_high']:.1%}) after. More train steps or levels may show one; the page "
        "'A run that does not learn' says what else to try."
    )


def report_table(report: Mapping[str, Any], console: Console) -> Table:
    """Return the report as a table for people.

    Args:
        report: As `build_report` returns it.
        console: Where it will be printed. If it is too narrow for figures with their intervals
            beside them, every interval is on a line of its own.
    """
    wide = _table(report, " ")
    unlimited = console.options.update(max_width=_UNLIMITED)
    fits = console.measure(wide, options=unlimited).maximum <= console.width
    return wide if fits else _table(report, "\n")


def _table(report: Mapping[str, Any], between: str) -> Table:
    """Return the report with a text between figures and intervals."""
    table = Table(
        title=f"Held-out success on {report['num_episodes']} levels "
        f"(manifest {report['manifest']}), 95 % Wilson intervals",
        title_justify="left",
    )
    columns = {
        "before training": "before",
        "after warm start": "warm_start",
        "after training": "after",
    }
    columns = {heading: key for heading, key in columns.items() if key in report}
    table.add_column("who plays", no_wrap=True)
    for heading in columns:
        table.add_column(heading)
    share = partial(_share, between)
    labels = {
        "greedy": "team, greedy",
        "sampled": "team, sampled",
        "swapped": "team, roles swapped",
    }
    for name in report["after"]["variants"]:
        found = [report[key]["variants"].get(name) for key in columns.values()]
        table.add_row(labels.get(name, name), *map(share, found))
        for env in report["after"]["variants"][name].get("environments", {}):
            own = [None if figures is None else _of(figures, env) for figures in found]
            table.add_row(f"  {env}", *map(share, own))
    for name, figures in report["scripted"].items():
        same = ["same"] * (len(columns) - 1)
        table.add_row(f"scripted policy {name.partition(':')[2]}", share(figures), *same)
        for env, own in figures.get("environments", {}).items():
            table.add_row(f"  {env}", share(own), *same)
    return table


def _of(figures: Mapping[str, Any], env: str) -> Mapping[str, Any] | None:
    return figures.get("environments", {}).get(env)


def _policies(line: Mapping[str, Any]) -> dict[str, Any]:
    variants = line["variants"].items()
    return {n: figures for n, figures in variants if not (is_scripted(n) or is_untouched(n))}


def _share(between: str, figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "-"
    low, high = 100 * figures["success_low"], 100 * figures["success_high"]
    share = f"{100 * figures['success']:.1f} %{between}({low:.1f} to {high:.1f})"
    return f"{share}, {figures['num_failed']} failed" if figures["num_failed"] else share
