"""Several runs on one page: what each is, its curves over those of the others, what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.viewer.runs import OpenedRun

# Points of a curve on the page; longer ones show every n-th train step, and the last.
MAX_POINTS = 400
# What keys begin with that decide no result.
_NO_DIFFERENCE = ("output_dir", "logging.")


class Overview:
    """Runs side by side."""

    def __init__(self, runs: Sequence[OpenedRun], links: Sequence[str]) -> None:
        self._runs, self._links = runs, links
        self._names = _distinct_names(runs)

    def head(self) -> dict[str, Any]:
        """What the page is called and what it cannot show."""
        env_ids = dict.fromkeys(run.env_id for run in self._runs)
        return {
            "kind": "runs",
            "name": f"{len(self._runs)} runs",
            "env_id": ", ".join(env_ids),
            "notices": self.notices(),
        }

    def notices(self) -> list[str]:
        """What the page cannot show, and why, as readable sentences."""
        return [
            f"{name}: {notice}"
            for name, run in zip(self._names, self._runs, strict=True)
            for notice in run.notices
        ]

    def to_json(self) -> dict[str, Any]:
        """What the page needs."""
        runs = zip(self._names, self._runs, self._links, strict=True)
        return {
            "runs": [
                {
                    "name": name,
                    "link": link,
                    "kind": run.kind,
                    "env_id": run.env_id,
                    "num_steps": run.settings.get("num_steps"),
                    "curves": _thinned_curves(run.curves),
                    "figures": run.figures,
                }
                for name, run, link in runs
            ],
            "differences": self._differences(),
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


def _distinct_names(runs: Sequence[OpenedRun]) -> list[str]:
    names = [run.path.resolve().name for run in runs]
    # Runs of several machines are often called alike.
    is_distinct = len(set(names)) == len(names)
    return names if is_distinct else [str(run.path) for run in runs]


def _thinned_curves(curves: Mapping[str, Any]) -> dict[str, Any]:
    metrics: Mapping[str, list[list[Any]]] = curves.get("metrics", {})
    return {
        "metrics": {name: [_thinned(column) for column in both] for name, both in metrics.items()},
        "evaluations": curves.get("evaluations", {}),
    }


def _thinned(column: list[Any]) -> list[Any]:
    stride = -(-len(column) // MAX_POINTS)
    return column if stride < 2 else [*column[:-1:stride], column[-1]]
