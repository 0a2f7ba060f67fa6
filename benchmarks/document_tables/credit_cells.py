"""Results of the study by row and way, and what a table takes from them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from statistics import fmean
from typing import Any

import numpy as np
from credit_study.intervals import holm, p_value, paired
from credit_study.rows import read_table, ways_of

from document_tables.markdown import RESULTS, result

TABLE = read_table()
Cell = Mapping[str, Any]
Place = tuple[str, str]
"""Row and way."""
Value = Callable[[Cell], float]
_LEVEL = 0.05


class Results:
    """The cells of a layer.

    Args:
        layer: A layer of the study.
    """

    def __init__(self, layer: str) -> None:
        self.layer = layer
        path = RESULTS / f"credit_{layer}.json"
        self.data: dict[str, Any] = result(path.stem) if path.is_file() else {"cells": {}}
        self.cells: Mapping[str, Cell] = self.data["cells"]
        self._by_seed: dict[Place, dict[int, Cell]] = defaultdict(dict)
        for key, cell in self.cells.items():
            kind, *place = key.split("|")
            if kind in ("exact", "tiny"):
                name, way, seed = place
                self._by_seed[name, way][int(seed)] = cell
        self.rows = {
            row["name"]: row for row in TABLE["exact" if layer == "exact" else "tiny"]["rows"]
        }

    def of(self, name: str, way: str) -> list[Cell]:
        """Return the cells of a row and way, by seed."""
        return [cell for _, cell in sorted(self._by_seed[name, way].items())]

    def has(self, name: str, way: str) -> bool:
        """Return whether all seeds of a row and way are there."""
        found = self._by_seed.get((name, way), {})
        return set(found) == set(self.rows[name].get("seeds", TABLE["seeds"]))

    def is_complete(self, name: str) -> bool:
        """Return whether all ways of a row are there."""
        row, section = self.rows[name], TABLE["exact" if self.layer == "exact" else "tiny"]
        found = [self.has(name, way) for way in row.get("plays", ways_of(section, row))]
        return all(found)

    def mean(self, place: Place, value: Value) -> float:
        """Return the mean over seeds of what a value takes from a cell, in percent."""
        return 100 * fmean(map(value, self.of(*place)))

    def differences(self, place: Place, other: Place, value: Value) -> list[float]:
        """Return the differences of two places, by the seeds that both have."""
        ours, theirs = self._by_seed[place], self._by_seed[other]
        return [value(ours[s]) - value(theirs[s]) for s in sorted(set(ours) & set(theirs))]

    def caption(self) -> str:
        """Return when and how the cells were computed."""
        if not self.cells:
            return "\nNot measured yet.\n"
        hours = sum(cell["processor_seconds"] for cell in self.cells.values()) / 3600
        commits = Counter(cell["commit"][:9] for cell in self.cells.values())
        at = ", ".join(f"{commit} ({number:,})" for commit, number in commits.most_common())
        again = sum("found_again" in cell for cell in self.cells.values())
        note = f"; {again:,} came out equal when a later one computed them again" if again else ""
        return (
            f"\nMeasured until {self.data['date']}, {self.data['hardware']}, with "
            f"`{self.data['command']}`: {len(self.cells):,} cells, {hours:.1f} h. "
            f"Commits (cells): {at}{note}.\n"
        )


@lru_cache(maxsize=4)
def results(layer: str) -> Results:
    """Return the cells of a layer, read once."""
    return Results(layer)


def label_of(way: str) -> str:
    """Return what documents call a way."""
    return TABLE["ways"][way]["label"]


def at_end(cell: Cell) -> float:
    """Return the success of a trial after its largest budget."""
    return cell["success"][max(cell["success"], key=int)]


def greedy(cell: Cell) -> float:
    """Return the success of a trial in the end when the likeliest answers are given."""
    return cell["greedy"]


def over_budgets(cell: Cell) -> float:
    """Return the mean success of a trial over its budgets."""
    return fmean(cell["success"].values())


def at_tokens(cell: Cell, tokens: float) -> float:
    """Return the success of a training at a number of tokens, between its evaluations."""
    return float(np.interp(tokens, *zip(*((x, y) for x, y, _ in cell["curve"]), strict=True)))


def over_tokens(cell: Cell, tokens: float) -> float:
    """Return the mean success of a training up to a number of tokens."""
    return fmean(at_tokens(cell, at) for at in np.linspace(0, tokens, 200))


class Family:
    """Differences of one table, corrected together.

    Args:
        found: Place to its differences.
    """

    def __init__(self, found: Mapping[Place, Sequence[float]]) -> None:
        self._found = found
        self._p = dict(zip(found, map(p_value, found.values()), strict=True))
        self._corrected = dict(zip(found, holm([*self._p.values()]), strict=True))

    def shown(self, place: Place) -> str:
        """Return a difference with its interval, in bold if the correction leaves it."""
        if place not in self._found:
            return ""
        text = paired(self._found[place])
        return f"**{text}**" if self._corrected[place] <= _LEVEL else text

    def note(self) -> str:
        """Return how to read the differences."""
        alone, left = (sum(p <= _LEVEL for p in of.values()) for of in (self._p, self._corrected))
        text = "Differences in points, paired by seed, with 95 % t-intervals. "
        return (
            f"{text}The family is all {len(self._found)} of this table: one by one {alone} exclude "
            f"0; in **bold** the {left} that Holm's correction leaves.\n"
        )
