"""Figures of the page: learning curves, and the overview."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from credit_study.overview import draw_overview
from credit_study.selection import Cells, Table, best_rate, ends_of

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "assets"
_NO_RULES = ("oracle", "random")
"""Scripted policies that no line is drawn for."""


_COLOURS = (*(f"C{number}" for number in range(10)), "black", "gold", "lightgreen", "lightcoral")
"""Of variants, as many as are drawn."""


def draw(table: Table, cells: Cells) -> None:
    """Write all figures that there are results for."""
    import matplotlib  # slow, and only when figures are drawn

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "study"
    from matplotlib import pyplot

    rewards = table["exact"]["rewards"]
    figure, panels = pyplot.subplots(1, len(rewards), figsize=(11, 4), sharey=True)
    for panel, reward in zip(panels, rewards, strict=True):
        for number, (name, variant) in enumerate(table["variants"].items()):
            _, curves = best_rate(table, cells, reward, name)
            if curves:
                budgets = table["exact"]["budgets"]
                mean = np.mean(curves, 0)
                colour, style = f"C{number % 10}", ("-", "--", ":")[number // 10]
                label = variant["label"]
                panel.plot(budgets, mean, style, color=colour, marker=".", label=label)
                low, high = np.min(curves, 0), np.max(curves, 0)
                panel.fill_between(budgets, low, high, color=colour, alpha=0.05)
        panel.set(title=f"{reward} reward", xlabel="sampled completions", xscale="log")
        panel.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("probability of success")
    panels[-1].legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(FIGURES / "credit-exact.svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    _draw_tiny(table, cells, pyplot)
    draw_overview(table, cells, pyplot, FIGURES / "credit-overview.svg")


def _draw_tiny(table: Table, cells: Cells, pyplot: Any) -> None:
    section = table["tiny"]
    rewards = section["rewards"]
    tasks = {
        task: settings
        for task, settings in section["tasks"].items()
        if any(_shown(table, cells, task, reward) for reward in rewards)
    }
    if not tasks:
        return
    figure, rows = pyplot.subplots(
        len(tasks), len(rewards), figsize=(11, 3 * len(tasks)), sharey=True, squeeze=False
    )
    lines: dict[str, Any] = {}
    for panels, (task, settings) in zip(rows, tasks.items(), strict=True):
        for panel, reward in zip(panels, rewards, strict=True):
            title = f"{settings['label']}, {reward} reward"
            panel.set(title=title, xlabel="sampled tokens, thousands", ylabel="success")
            panel.grid(alpha=0.25)
            panel.tick_params(labelleft=True)  # its neighbour may be empty
            shown = _shown(table, cells, task, reward)
            panel.set_visible(bool(shown))
            for label, style, found in shown:
                lines.setdefault(label, _draw_curve(panel, found, settings["tokens"], style))
            rules = [_best_rule(cell) for _, _, found in shown for cell in found.values()]
            if rules:
                rule = panel.axhline(max(rules), color="black", linestyle=":")
                lines.setdefault("best simple rule", rule)
    legend = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncol": 2, "fontsize": 8}
    figure.legend(lines.values(), lines.keys(), **legend)
    figure.tight_layout()
    figure.savefig(FIGURES / "credit-tiny.svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def _shown(
    table: Table, cells: Cells, task: str, reward: str
) -> list[tuple[str, dict[str, Any], dict[int, Any]]]:
    """Return label, style and cells of what a panel shows: variants, and dashed what was changed.

    Ablations with a text `drawn` are shown, by that text; with dots if they change the algorithm.
    """
    section = table["tiny"]
    find = partial(ends_of, table, cells, task, reward)
    shown = [
        (name, "", "-", find(name))
        for name in section["tasks"][task].get("variants", section["variants"])
    ]
    shown += [
        (
            name,
            f", {changed['drawn']}",
            "-." if "algorithm" in changed else "--",
            find(name, rate, changed["label"]),
        )
        for changed in section.get("ablations", ())
        if "drawn" in changed and task in changed["tasks"]
        for rate in [changed.get("learning_rate", section["learning_rate"])]
        for name in changed["variants"]
    ]
    others = [*section["tasks"].values(), *section.get("ablations", ())]
    of_others = (name for of in others for name in of.get("variants", ()))
    names = dict.fromkeys([*section["variants"], *of_others])
    colours = dict(zip(names, _COLOURS, strict=False))
    return [
        (
            table["variants"][name]["label"] + changed,
            {"color": colours[name], "linestyle": line},
            ends,
        )
        for name, changed, line, ends in shown
        if ends
    ]


def _draw_curve(
    panel: Any, found: Mapping[int, Any], tokens: float, style: Mapping[str, Any]
) -> Any:
    """Draw the mean learning curve over seeds, with their range; return its line."""
    grid = np.linspace(0, tokens, 40)
    curves = [
        np.interp(grid, *zip(*((x, y) for x, y, _ in cell["curve"]), strict=True))
        for cell in found.values()
    ]
    grid = grid / 1000
    (line,) = panel.plot(grid, np.mean(curves, 0), **style)
    panel.fill_between(grid, np.min(curves, 0), np.max(curves, 0), color=style["color"], alpha=0.08)
    return line


def _best_rule(cell: Mapping[str, Any]) -> float:
    return max(
        (share for name, share in cell["scripted"].items() if name not in _NO_RULES), default=0.0
    )
