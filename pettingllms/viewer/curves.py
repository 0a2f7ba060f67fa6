"""What changes over the train steps of a run, as columns to draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingllms.viewer.lines import LineFile

_COLUMNS = (
    "success",
    "success_low",
    "success_high",
    "num_turns",
    "num_episodes",
    "num_expected",
    "failures",
)


def metric_columns(file: LineFile) -> dict[str, list[list[Any]]]:
    """Return name of a metric -> its steps and its values, of a `metrics.jsonl`."""
    columns: dict[str, list[list[Any]]] = {}
    for step, values in file.read(_metric_line):
        for name, value in values.items():
            steps, column = columns.setdefault(name, [[], []])
            steps.append(step)
            column.append(value)
    return columns


def variant_columns(file: LineFile) -> dict[str, dict[str, list[Any]]]:
    """Return variant -> columns of an `evaluations.jsonl`: steps, and figures at each.

    They are success with its interval, turns, episodes that did not fail, all episodes, and
    cause -> rollouts that failed.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for step, variants in file.read(_evaluation_line):
        for variant, figures in variants.items():
            columns = found.setdefault(variant, {name: [] for name in ("step", *_COLUMNS)})
            for name, value in zip(("step", *_COLUMNS), (step, *figures), strict=True):
                columns[name].append(value)
    return found


def _metric_line(line: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    return int(line["step"]), {name: line[name] for name in line if name != "step"}


def _evaluation_line(line: Mapping[str, Any]) -> tuple[int, dict[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for variant, figures in line["variants"].items():
        found[variant] = _of_variant(figures)
        for env, own in figures.get("environments", {}).items():
            found[f"{variant}, {env}"] = _of_variant(own)
    return int(line["step"]), found


def _of_variant(figures: Mapping[str, Any]) -> list[Any]:
    num_expected = figures["num_episodes"]
    return [
        *(figures[name] for name in ("success", "success_low", "success_high", "num_turns")),
        num_expected - figures["num_failed"],
        num_expected,
        figures.get("failures", {}),  # older runs name no causes
    ]
