"""Several runs on one page: what each is, its curves over those of the others, what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.errors import counted
from pettingllms.viewer.runs import OpenedRun
from pettingllms.viewer.summary import training_table

# Points of a curve on the page; longer ones show every n-th train step, and the last.
MAX_POINTS = 400
# Runs that a sentence names.
MAX_NAMES = 4
# What keys begin with that decide no result.
_NO_DIFFERENCE = ("output_dir", "logging.")


class Overview:
    """Several runs on one page.

    Args:
        runs: The runs.
        links: The addresses of their own pages, in the same order.
    """

    def __init__(self, runs: Sequence[OpenedRun], links: Sequence[str]) -> None:
        self._runs, self._links = runs, links
        self._names = _distinct_names(runs)

    def head(self) -> dict[str, Any]:
        """What the page is called and what it cannot show."""
        env_ids = dict.fromkeys(run.env_id for run in self._runs)
        return {
            "kind": "runs",
            "name": counted(len(self._runs), "run"),
            "env_id": ", ".join(env_ids),
            "notices": self.notices(),
        }

    def notices(self) -> list[str]:
        """What the page cannot show, and why, as readable sentences; what runs share, once."""
        names: dict[str, list[str]] = {}
        for name, run in zip(self._names, self._runs, strict=True):
            for notice in run.notices:
                names.setdefault(notice, []).append(name)
        return [f"{_listed(own)}: {notice}" for notice, own in names.items()]

    def to_json(self) -> dict[str, Any]:
        """What the page needs."""
        differences = self._differences()
        groups = [_group(differences, number) for number in range(len(self._runs))]
        return {
            "runs": [
                {
                    "name": name,
                    "link": link,
                    "group": group,
                    "kind": run.kind,
                    "env_id": run.env_id,
                    "num_steps": run.settings.get("num_steps"),
                    "curves": _thinned_curves(run.curves),
                    "held_out": training_table(
                        run.curves.get("evaluations", {}), run.settings.get("num_steps")
                    ),
                    "figures": run.figures,
                }
                for name, run, link, group in zip(
                    self._names, self._runs, self._links, groups, strict=True
                )
            ],
            "differences": differences,
        }

    def _differences(self) -> dict[str, list[Any]]:
        """Key -> value in every run, null where it has none, of the keys that differ."""
        keys = dict.fromkeys(key for run in self._runs for key in run.settings)
        # A key that a run lacks counts as different: its default may be another one.
        rows = {key: [run.settings.get(key) for run in self._runs] for key in keys}
        return {
            key: values
            for key, values in rows.items()
            if not key.startswith(_NO_DIFFERENCE) and any(v != values[0] for v in values)
        }


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _group(differences: Mapping[str, list[Any]], run: int) -> str:
    """What runs that differ in their seed alone have in common; the name of a mean over them."""
    own = [f"{key}={values[run]}" for key, values in differences.items() if key != "seed"]
    return ", ".join(own) or "one configuration"


def _distinct_names(runs: Sequence[OpenedRun]) -> list[str]:
    names = [run.path.resolve().name for run in runs]
    # Runs of several machines are often called alike.
    is_distinct = len(set(names)) == len(names)
    return names if is_distinct else [str(run.path) for run in runs]


def _thinned_curves(curves: Mapping[str, Any]) -> dict[str, Any]:
    thinned = {
        kind: {name: [_thinned(column) for column in both] for name, both in found.items()}
        for kind, found in curves.items()
        if kind != "evaluations"
    }
    return {**thinned, "evaluations": curves.get("evaluations", {})}


def _thinned(column: list[Any]) -> list[Any]:
    stride = -(-len(column) // MAX_POINTS)
    return column if stride < 2 else [*column[:-1:stride], column[-1]]
