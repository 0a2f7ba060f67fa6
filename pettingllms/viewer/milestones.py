"""How much was solved at the moments that matter: before, after a warm start, after training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Columns = Mapping[str, Sequence[Any]]
"""Figures of a variant over the steps at which it was evaluated; see `curves.variant_columns`."""

UNTOUCHED = "untouched:"
"""Begins the names of variants in which policies play as they were before a warm start."""
_SCRIPTED = ("scripted:", "reference:")
_FIGURES = ("success", "success_low", "success_high", "num_episodes", "num_expected", "failures")


def moment_name(step: int, evaluations: Mapping[str, Columns], num_steps: Any) -> str:
    """Return what the moment after a train step is called.

    Args:
        step: Train steps taken; 0: none.
        evaluations: Variant -> its figures.
        num_steps: Train steps of the whole run; None when unknown.
    """
    if step == 0:
        has_warm_start = any(name.startswith(UNTOUCHED) for name in evaluations)
        return "after warm start" if has_warm_start else "before training"
    return "after training" if step == num_steps else f"after step {step}"


def training_table(evaluations: Mapping[str, Columns], num_steps: Any) -> dict[str, Any]:
    """Return held-out success of a training run at its first and its latest evaluation.

    Args:
        evaluations: Variant -> its figures.
        num_steps: Train steps of the whole run; None when unknown.

    Returns:
        `columns`: names of the moments. `rows`: who plays, with a cell for each moment: its
        figures, or null where it was not evaluated. Scripted policies, which learn nothing, have
        one cell, of their first evaluation.
    """
    learnt = [n for n in evaluations if not n.startswith((*_SCRIPTED, UNTOUCHED))]
    steps = sorted({step for name in learnt for step in evaluations[name]["step"]})
    moments = [(step, "") for step in dict.fromkeys((*steps[:1], *steps[-1:]))]
    columns = [moment_name(step, evaluations, num_steps) for step, _ in moments]
    if any(name.startswith(UNTOUCHED) for name in evaluations):
        moments, columns = [(0, UNTOUCHED), *moments], ["before training", *columns]
    rows = [
        {
            "name": f"team, {name}",
            "cells": [_cell(evaluations.get(prefix + name), step) for step, prefix in moments],
        }
        for name in learnt
    ]
    rows += [
        {
            "name": f"scripted policy {name.partition(':')[2]}",
            "cells": [_cell(evaluations[name], evaluations[name]["step"][0])],
        }
        for name in evaluations
        if name.startswith(_SCRIPTED)
    ]
    return {"columns": columns, "rows": rows}


def evaluation_table(figures: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the success of the variants of an evaluation, in the form of `training_table`.

    Args:
        figures: Variant -> its figures, as in its report; None: there is no report yet.
    """
    cells = [
        {
            "success": one["success"]["value"],
            "success_low": one["success"]["low"],
            "success_high": one["success"]["high"],
            "num_episodes": one["num_episodes"],
            "num_expected": one["num_expected"],
            "failures": one["failures"],
        }
        for one in (figures or {}).values()
    ]
    rows = [{"name": "solved", "cells": cells}] if cells else []
    return {"columns": list(figures or ()), "rows": rows}


def _cell(columns: Columns | None, step: int) -> dict[str, Any] | None:
    if columns is None or step not in columns["step"]:
        return None
    at = list(columns["step"]).index(step)
    return {figure: columns[figure][at] for figure in _FIGURES}
