"""Tables and figures of the study, and the page of the documentation that they are in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean

from document_tables.markdown import markdown

from credit_study.cells import LAYERS, cells_of
from credit_study.curves import draw
from credit_study.exact_tables import EXACT_TABLES
from credit_study.selection import Cells, Table
from credit_study.tiny_tables import TINY_TABLES

__all__ = ["PAGE", "rendered", "write_page"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "which-credit.md"
_BLOCK = re.compile(r"(<!-- study:(\w+) -->\n).*?(<!-- /study:\2 -->)", re.DOTALL)


def write_page(table: Table, result: Path) -> None:
    """Write the tables into the page, and the figures beside it."""
    cells: Cells = json.loads(result.read_text(encoding="utf-8"))["cells"]
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), table, cells), encoding="utf-8")
    draw(table, cells)


def rendered(text: str, table: Table, cells: Cells) -> str:
    """Return the page with all its tables made again."""
    blocks = {"state": _state, **EXACT_TABLES, **TINY_TABLES}

    def replace(match: re.Match[str]) -> str:
        return match.group(1) + blocks[match.group(2)](table, cells) + match.group(3)

    return _BLOCK.sub(replace, text)


def _state(table: Table, cells: Cells) -> str:
    rows: list[list[str]] = []
    for layer in LAYERS:
        keys = {cell.key for cell in cells_of(table, layer, cells)}
        there = [cell for key, cell in cells.items() if key in keys]
        failed = sum("error" in cell for cell in there)
        late = sum(cell.get("complete") is False for cell in there)
        counts = [str(number) for number in (len(keys), len(there), failed, late)]
        seconds = {
            key: cells[key]["processor_seconds"]
            for key in keys
            if "processor_seconds" in cells.get(key, {})
        }
        rows.append([layer, *counts, *_times(seconds, keys)])
    head = ["layer", "cells", "computed", "failed", "out of time before their tokens were used"]
    head += ["timed", "longest cell, s", "all cells, h"]
    return markdown(head, rows)


def _times(seconds: Mapping[str, float], keys: Iterable[str]) -> list[str]:
    """Return of how many cells processor time is known, that of the longest, and of all cells."""
    if not seconds:
        return ["0", "-", "-"]
    hours = sum(_expected(key, seconds) for key in keys) / 3600
    return [f"{len(seconds)}", f"{max(seconds.values()):.0f}", f"{hours:.1f}"]


def _expected(key: str, seconds: Mapping[str, float]) -> float:
    """Return the time of a cell: its own, or the mean of those that are most like it."""
    parts = key.split("|")
    # Of the same task, reward and variant; of the same task; of the layer.
    starts = [key, "|".join(parts[:4]) + "|", "|".join(parts[:2]) + "|", ""]
    alike = ([s for other, s in seconds.items() if other.startswith(start)] for start in starts)
    return fmean(next(filter(None, alike)))
