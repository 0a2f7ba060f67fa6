"""The answer at one glance: a few ways of training, side by side in all tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from document_tables.markdown import markdown

from credit_study.intervals import holm, p_value, paired
from credit_study.selection import Cells, Table, all_seeds, along, differences, ends_of
from pettingllms.evaluation.statistics import mean_interval

_MARKERS = "osD^v"
_LEVEL = 0.05
_HEIGHT = 0.8
"""Of the rows of a task in the figure, in tasks."""


class _Task(NamedTuple):
    """How the ways did in one task."""

    label: str
    tokens: float
    found: Mapping[str, Mapping[int, Any]]
    """Way -> seed -> cell, for all seeds that there are; only ways that were run."""
    seeds: Sequence[int]
    """Those that means are taken of."""

    def cells(self, way: str) -> list[Any]:
        """Return the cells of these seeds."""
        found = self.found[way]
        return [found[seed] for seed in self.seeds if seed in found]

    def means(self, way: str) -> list[float]:
        """Return the means over the tokens of these seeds."""
        return [along(cell, self.tokens) for cell in self.cells(way)]


def overview_table(table: Table, cells: Cells) -> str:
    """Return the table of all ways and tasks, and what is left of its differences as a family."""
    overview = table["tiny"]["overview"]
    ways, compared = overview["ways"], overview["compared"]
    others = [way for way in ways if way != compared]
    tasks = [
        (panel["title"], task)
        for panel in overview["panels"]
        for task in _tasks(table, cells, panel)
    ]
    found = {
        (row, way): _differences(task, compared, way)
        for row, (_, task) in enumerate(tasks)
        for way in others
    }
    family = {key: p_value(of) for key, of in found.items() if len(of) > 1}
    corrected = dict(zip(family, holm([*family.values()]), strict=True))
    rows: list[list[str]] = []
    for row, (title, task) in enumerate(tasks):
        shown = [_shown(task, way) for way in ways]
        between = [_marked(found[row, way], corrected.get((row, way))) for way in others]
        rows.append([title, task.label, *shown, *between])
    head = ["what is rewarded", "task", *ways.values()]
    head += (f"{ways[compared]} minus {ways[way]} (95 %)" for way in others)
    return markdown(head, rows) + (
        f"\nThe family is all {len(family)} differences of this table. One by one, "
        f"{_num_real(family)} exclude 0; after Holm's correction, at {100 * _LEVEL:.0f} % for all "
        f"together, {_num_real(corrected)}, in **bold**.\n"
    )


def _num_real(p_values: Mapping[Any, float]) -> int:
    return sum(value < _LEVEL for value in p_values.values())


def draw_overview(table: Table, cells: Cells, pyplot: Any, path: Path) -> None:
    """Write the figure of the same: means over the tokens with their intervals over seeds."""
    overview = table["tiny"]["overview"]
    panels = [(panel["title"], [*_tasks(table, cells, panel)]) for panel in overview["panels"]]
    panels = [(title, tasks) for title, tasks in panels if tasks]
    if not panels:
        return
    heights = [len(tasks) for _, tasks in panels]
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(9, 1.5 + 0.6 * sum(heights)),
        sharex=True,
        squeeze=False,
        height_ratios=heights,
    )
    for panel, (title, tasks) in zip(axes[:, 0], panels, strict=True):
        _draw_panel(panel, tasks, overview["ways"])
        panel.set_title(f"rewarded: {title}", fontsize=10, loc="left")
    axes[-1, 0].set(xlabel="success in percent, mean over the sampled tokens", xlim=(0, 100))
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="upper center", ncol=3, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.6 / figure.get_figheight()))
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def _draw_panel(panel: Any, tasks: list[_Task], ways: Mapping[str, str]) -> None:
    for number, (way, label) in enumerate(ways.items()):
        shift = _HEIGHT * ((number + 0.5) / len(ways) - 0.5)
        places = [row for row, task in enumerate(tasks) if way in task.found]
        found = [mean_interval([100 * mean for mean in tasks[row].means(way)]) for row in places]
        means, lengths = [of.value for of in found], [of.high - of.value for of in found]
        style = {"fmt": _MARKERS[number % len(_MARKERS)], "color": f"C{number}", "label": label}
        panel.errorbar(means, [row + shift for row in places], xerr=lengths, **style)
    panel.set_yticks(range(len(tasks)), [task.label for task in tasks])
    panel.set_ylim(len(tasks) - 0.5, -0.5)  # the first is at the top
    for row in range(1, len(tasks)):
        panel.axhline(row - 0.5, color="black", linewidth=0.4, alpha=0.4)
    panel.grid(alpha=0.25, axis="x")


def _tasks(table: Table, cells: Cells, panel: Mapping[str, Any]) -> Iterator[_Task]:
    """Yield the tasks of a panel of which there are results."""
    section, seeds = table["tiny"], table["seeds"]
    find = partial(ends_of, table, cells, seeds=all_seeds(table))
    for task, labels in panel["rows"].items():
        ends = {
            way: find(task, panel["reward"], way, changed=labels.get(way, ""))
            for way in section["overview"]["ways"]
        }
        # A single one has no interval.
        found = {w: of for w, of in ends.items() if sum(seed in of for seed in seeds) > 1}
        if found:
            settings = section["tasks"][task]
            yield _Task(settings["label"], settings["tokens"], found, seeds)


def _shown(task: _Task, way: str) -> str:
    if way not in task.found:
        return ""
    end = fmean(cell["curve"][-1][1] for cell in task.cells(way))
    return f"{100 * fmean(task.means(way)):.0f} % ({100 * end:.0f} %)"


def _differences(task: _Task, way: str, other: str) -> list[float]:
    """Return the differences of two ways, over all seeds that both have run."""
    if way not in task.found or other not in task.found:
        return []
    return differences(task.found[way], task.found[other], task.tokens)


def _marked(found: Sequence[float], corrected: float | None) -> str:
    """Return a difference, in bold if its corrected p-value says that it is one."""
    text = paired(found) if found else ""
    return text if corrected is None or corrected >= _LEVEL else f"**{text}**"
