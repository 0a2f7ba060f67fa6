"""What a run achieved: held-out figures before and after training, beside scripted policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pettingllms_trainers.runs.evaluate import is_scripted

__all__ = ["build_report", "report_table"]


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
    return {
        "manifest": first["manifest"],
        "num_episodes": first["num_episodes"],
        "before": {"step": first["step"], "variants": _policies(first)},
        "after": {"step": last["step"], "variants": {**_policies(last), **final_variants}},
        "scripted": scripted,
    }


def report_table(report: Mapping[str, Any]) -> Table:
    """Return the report as a table for people."""
    table = Table(
        title=f"Held-out success on {report['num_episodes']} levels "
        f"(manifest {report['manifest']}), 95 % Wilson intervals",
        title_justify="left",
    )
    for heading in ("who plays", "before training", "after training"):
        table.add_column(heading)
    before, after = report["before"]["variants"], report["after"]["variants"]
    labels = {
        "greedy": "team, greedy",
        "sampled": "team, sampled",
        "swapped": "team, roles swapped",
    }
    for name, figures in after.items():
        table.add_row(labels.get(name, name), _share(before.get(name)), _share(figures))
    for name, figures in report["scripted"].items():
        table.add_row(f"scripted policy {name.partition(':')[2]}", _share(figures), "same")
    return table


def _policies(line: Mapping[str, Any]) -> dict[str, Any]:
    return {n: figures for n, figures in line["variants"].items() if not is_scripted(n)}


def _share(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "-"
    low, high = 100 * figures["success_low"], 100 * figures["success_high"]
    share = f"{100 * figures['success']:.1f} % ({low:.1f} to {high:.1f})"
    return f"{share}, {figures['num_failed']} failed" if figures["num_failed"] else share
