"""Which cells a row of a table or a curve of a figure is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Cells = Mapping[str, Mapping[str, Any]]
"""Key to result."""
Table = Mapping[str, Any]
"""The table of the study."""
BASELINES = {"at_grpo": "AT-GRPO", "grpo": "GRPO"}
"""Variants that all others are compared with in pairs, and their names in heads of tables."""


def along(cell: Mapping[str, Any], tokens: float) -> float:
    """Return the mean of a learning curve over the tokens of a task.

    Runs end where they end a step, some thousand tokens apart; this does not depend on it, and it
    tells apart what reaches 100 % early from what does so late.
    """
    grid = np.linspace(0, tokens, 200)
    return float(
        np.mean(np.interp(grid, *zip(*((x, y) for x, y, _ in cell["curve"]), strict=True)))
    )


def differences(found: Mapping[int, Any], other: Mapping[int, Any], tokens: float) -> list[float]:
    """Return the differences of the means over the tokens of two rows, for the seeds of both.

    The runs of a seed begin with the same weights.

    Args:
        found: Seed -> cell.
        other: Seed -> cell, of what is subtracted.
        tokens: Those of the task.
    """
    seeds = sorted(set(found) & set(other))
    return [along(found[s], tokens) - along(other[s], tokens) for s in seeds]


def rates_of(section: Table, task: str, name: str) -> list[float]:
    """Return the learning rates that are tried for a variant on the first seed."""
    grid = section.get("grid", {})
    if task not in grid.get("tasks", ()) or name not in grid.get("variants", ()):
        return [section["learning_rate"]]
    return list(section["tasks"][task].get("learning_rates", grid["learning_rates"]))


def chosen_rate(table: Table, cells: Cells, layer: str, task: str, reward: str, name: str) -> float:
    """Return the learning rate of a variant: the best one over the curve of the first seed.

    It is that of the recipes where no others are tried, or none has been yet.
    """
    section, seed = table[layer], table["seeds"][0]
    found: dict[float, float] = {}
    for rate in rates_of(section, task, name):
        cell = cells.get(f"{layer}|{task}|{reward}|{name}|{rate}|{seed}")
        if cell is not None and _has_run(cell):
            found[rate] = along(cell, section["tasks"][task]["tokens"])
    return max(found, key=found.__getitem__, default=section["learning_rate"])


def ends_of(
    table: Table,
    cells: Cells,
    task: str,
    reward: str,
    name: str,
    rate: float | None = None,
    changed: str = "",
    seeds: Sequence[int] | None = None,
) -> dict[int, Any]:
    """Return seed -> cell of a row of the tiny layer, without failed runs.

    Args:
        table: The table of the study.
        cells: The results.
        task: A task of the layer.
        reward: Argument of the environment.
        name: A variant.
        rate: Learning rate; by default that of the ablation, or the chosen one without.
        changed: Label of an ablation; empty: the variant as it is.
        seeds: Those that are looked for; by default those of the table.

    Raises:
        LookupError: A rate is not given, and no ablation of that label has the task, the reward and
            the variant.
    """
    if rate is None and changed:
        rate = _rate_of_ablation(table["tiny"], task, reward, name, changed)
    elif rate is None:
        rate = chosen_rate(table, cells, "tiny", task, reward, name)
    suffix = f"|{changed}" if changed else ""
    found = {
        seed: cells.get(f"tiny|{task}|{reward}|{name}|{rate}|{seed}{suffix}")
        for seed in (table["seeds"] if seeds is None else seeds)
    }
    return {seed: cell for seed, cell in found.items() if cell is not None and _has_run(cell)}


def all_seeds(table: Table) -> list[int]:
    """Return the seeds of the tiny layer, ending with those that only some rows were run with."""
    fresh = table["tiny"].get("fresh", {})
    more = (seed for seeds in fresh.get("more", {}).values() for seed in seeds)
    return list(dict.fromkeys([*table["seeds"], *fresh.get("seeds", ()), *more]))


def _rate_of_ablation(section: Table, task: str, reward: str, name: str, label: str) -> float:
    for changed in section.get("ablations", ()):
        if (
            changed["label"] == label
            and task in changed.get("tasks", section["tasks"])
            and reward in changed.get("rewards", section["rewards"])
            and name in changed["variants"]
        ):
            return changed.get("learning_rate", section["learning_rate"])
    raise LookupError(f"no ablation {label!r} of {task}, {reward}, {name} is in the table")


def _has_run(cell: Mapping[str, Any]) -> bool:
    return bool(cell["curve"]) and "error" not in cell


def best_rate(
    table: Table, cells: Cells, reward: str, name: str
) -> tuple[float, list[list[float]]]:
    """Return the best learning rate of the trials of the exact layer, and what they gave.

    That is the best over all budgets. What they gave is success at every budget, by seed; nothing
    without trials.
    """
    found: dict[float, list[list[float]]] = defaultdict(list)
    budgets = [str(budget) for budget in table["exact"]["budgets"]]
    for rate in table["exact"]["learning_rates"]:
        for seed in table["seeds"]:
            cell = cells.get(f"trial|{reward}|{name}|{rate}|{seed}")
            if cell is not None:
                found[rate].append([cell["success"][budget] for budget in budgets])
    if not found:
        return table["exact"]["learning_rates"][0], []
    best = max(found, key=lambda rate: np.mean(found[rate]))
    return best, found[best]
