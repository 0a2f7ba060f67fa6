"""Tables and figures of the study, and the pages of the documentation that they are in."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

from document_tables.markdown import markdown

from credit_study.cells import LAYERS, Cell, cells_of
from credit_study.curves import draw
from credit_study.exact_tables import EXACT_TABLES
from credit_study.selection import Cells, Table
from credit_study.tiny_tables import TINY_TABLES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "research").glob("*.md"))
_BLOCK = re.compile(r"(<!-- study:(\w+) -->\n).*?(<!-- /study:\2 -->)", re.DOTALL)


def write_pages(table: Table, result: Path) -> None:
    """Write the tables into the pages, and the figures beside them."""
    cells: Cells = json.loads(result.read_text(encoding="utf-8"))["cells"]
    for page in PAGES:
        page.write_text(rendered(page.read_text(encoding="utf-8"), table, cells), encoding="utf-8")
    draw(table, cells)


def rendered(text: str, table: Table, cells: Cells) -> str:
    """Return a page with all its tables made again."""

    def replace(match: re.Match[str]) -> str:
        return match.group(1) + TABLES[match.group(2)](table, cells) + match.group(3)

    return _BLOCK.sub(replace, text)


def _state(table: Table, cells: Cells) -> str:
    rows: list[list[str]] = []
    parts: dict[str, list[str]] = defaultdict(list)
    for layer in LAYERS:
        for cell in cells_of(table, layer, cells):
            parts[_part(layer, cell)].append(cell.key)
    for part, keys in parts.items():
        there = [cells[key] for key in keys if key in cells]
        failed = sum("error" in cell for cell in there)
        late = sum(cell.get("complete") is False for cell in there)
        seconds = [cell["processor_seconds"] for cell in there if "processor_seconds" in cell]
        counts = (len(keys), len(there), failed, late, len(seconds))
        rows.append([part, *map(str, counts), f"{sum(seconds) / 3600:.1f}"])
    head = ["layer, part", "cells", "computed", "failed"]
    head += ["out of time before their tokens were used", "timed", "processor time of these, h"]
    return markdown(head, rows)


def _part(layer: str, cell: Cell) -> str:
    """Return the part of a layer that a cell belongs to, as the table of the state calls it."""
    key = cell.key
    if layer != "tiny":
        return layer
    if key.startswith("figure|"):
        return "tiny, Figure 1"
    if cell.is_further:
        return "tiny, further rows"
    return "tiny, one setting changed" if key.count("|") > 5 else "tiny, tasks"


TABLES = {"state": _state, **EXACT_TABLES, **TINY_TABLES}
"""Name of a block of a page -> what makes its table."""
