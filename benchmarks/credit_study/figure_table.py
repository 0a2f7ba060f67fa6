"""The table of Figure 1 at laptop scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from document_tables.markdown import markdown

from credit_study.intervals import pooled


def figure_table(table: Mapping[str, Any], cells: Mapping[str, Mapping[str, Any]]) -> str:
    """Return who was trained, with how many tokens, and what is solved before and after."""
    figure, rows = table["tiny"]["figure"], list[list[str]]()
    for name, setting in figure["settings"].items():
        found = _complete(table, cells, name)
        if found and name == "apart":
            rows += _apart(found)
        elif found:
            rows.append([setting["label"], *_row([cell["curve"] for cell in found])])
            if all("swapped" in cell for cell in found):
                shares = [(cell["swapped"], cell["curve"][-1][2]) for cell in found]
                rows.append(
                    ["the same, policies exchanged", "", str(len(found)), "", pooled(shares)]
                )
    return markdown(
        ["who is trained", "sampled tokens", "seeds", "before", "after (95 %); seeds"], rows
    )


def _complete(
    table: Mapping[str, Any], cells: Mapping[str, Mapping[str, Any]], name: str
) -> list[Mapping[str, Any]]:
    """Return the cells of a setting, by seed, without those that did not use up their tokens."""
    figure = table["tiny"]["figure"]
    setting, rate = figure["settings"][name], figure["learning_rate"]
    key = f"tiny|{figure['task']}|{figure['reward']}|{setting['variant']}|{rate}"
    key = f"figure|{name}" if "plays" in setting else key
    found = [cells.get(f"{key}|{seed}") for seed in table["seeds"]]
    return [cell for cell in found if cell and cell["complete"]]


def _apart(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the rows of roles that were trained apart, and of the team that they make."""
    rows = [
        [f"{label} alone, AT-GRPO", *_row([cell[role]["curve"] for cell in found])]
        for role, label in (("tool", "tool agent"), ("planner", "planner"))
    ]
    tokens = fmean(cell[role]["curve"][-1][0] for cell in found for role in ("tool", "planner"))
    levels = found[0]["tool"]["curve"][-1][2]
    before = fmean(cell["joined"]["before"] for cell in found)
    after = pooled([(cell["joined"]["after"], levels) for cell in found])
    joined = [f"{2 * tokens:,.0f}", str(len(found)), f"{100 * before:.0f} %", after]
    return [*rows, ["both, trained alone and then joined", *joined]]


def _row(curves: Sequence[Sequence[Sequence[float]]]) -> list[str]:
    tokens = fmean(curve[-1][0] for curve in curves)
    before = fmean(curve[0][1] for curve in curves)
    after = pooled([(curve[-1][1], int(curve[-1][2])) for curve in curves])
    return [f"{tokens:,.0f}", str(len(curves)), f"{100 * before:.0f} %", after]
