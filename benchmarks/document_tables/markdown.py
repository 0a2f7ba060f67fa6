"""What the tables of the documents are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"


def result(name: str) -> dict[str, Any]:
    """Return the content of `benchmarks/results/<name>.json`."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def ratio(entry: dict[str, Any]) -> str:
    """Return `median (min to max)` of a measured ratio."""
    low, mid, high = (f"{entry[key]:.3g}" for key in ("min", "median", "max"))
    return f"{mid}x ({low} to {high})"


def share(figures: dict[str, float]) -> str:
    """Return a success share with its 95 % interval, in per cent."""
    low, mid, high = (
        f"{100 * figures[key]:.1f}" for key in ("success_low", "success", "success_high")
    )
    return f"{mid} % ({low} to {high})"


def percent(figures: dict[str, float]) -> str:
    """Return a share in per cent."""
    return f"{100 * figures['median']:.1f} %"


def caption(data: dict[str, Any]) -> str:
    """Return when, where and by which command a result was measured."""
    return f"\nMeasured on {data['date']}, {data['hardware']}, with `{data['command'].strip()}`.\n"
