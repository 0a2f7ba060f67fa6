"""Which cells a row of a table or a curve of a figure is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

__all__ = ["Cells", "Table", "best_rate", "ends_of"]

Cells = Mapping[str, Mapping[str, Any]]
"""Key to result."""
Table = Mapping[str, Any]
"""The table of the study."""


def ends_of(
    table: Table, cells: Cells, task: str, reward: str, name: str, changed: str = ""
) -> dict[int, Any]:
    """Return seed -> cell, of the learning rate that ends best, without failed runs."""
    suffix = f"|{changed}" if changed else ""
    by_rate: dict[float, dict[int, Any]] = defaultdict(dict)
    for rate in table["tiny"]["learning_rates"]:
        for seed in table["seeds"]:
            cell = cells.get(f"tiny|{task}|{reward}|{name}|{rate}|{seed}{suffix}")
            if cell is not None and cell["curve"] and "error" not in cell:
                by_rate[rate][seed] = cell
    if not by_rate:
        return {}
    return max(by_rate.values(), key=lambda f: fmean(c["curve"][-1][1] for c in f.values()))


def best_rate(
    table: Table, cells: Cells, kind: str, reward: str, name: str
) -> tuple[float, list[list[float]]]:
    """Return the best learning rate over all budgets, and success at every budget by seed."""
    found: dict[float, list[list[float]]] = defaultdict(list)
    budgets = [str(budget) for budget in table["exact"]["budgets"]]
    for rate in table["exact"]["learning_rates"]:
        for seed in table["seeds"]:
            cell = cells.get(f"{kind}|{reward}|{name}|{rate}|{seed}")
            if cell is not None:
                found[rate].append([cell["success"][budget] for budget in budgets])
    if not found:
        return 0.0, []
    best = max(found, key=lambda rate: np.mean(found[rate]))
    return best, found[best]
