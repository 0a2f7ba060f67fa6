"""Every ratio in `benchmarks/results`, one table per file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from markdown_text import ROOT, breakable, code, table

_FIGURES = ("median", "min", "max")


def measured_ratios() -> str:
    """Return a section per result file that holds ratios."""
    parts: list[str] = []
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            [breakable(name), *(f"{entry[figure]:.3g}" for figure in _FIGURES)]
            for name, entry in _ratios(result, "")
        ]
        if rows:
            source = f"{code(result['command'])}, {result['date']}"
            parts.append(f"### {path.name}\n\n{source}\n\n{table(['ratio', *_FIGURES], rows)}")
    return "\n".join(parts)


def _ratios(value: Any, name: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield what is called `..._over_...` and has a median, by its path below `ratios`."""
    if not isinstance(value, dict):
        return
    if set(_FIGURES) <= set(value):
        if "_over_" in name:
            yield name, value
        return
    for key, part in value.items():
        is_heading = key in ("ratios", "figures", "metrics", "workloads")
        yield from _ratios(part, name if is_heading else f"{name}/{key}".lstrip("/"))
