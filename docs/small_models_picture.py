"""The picture of the page on small models: what every way learns, a panel per complete row.

    python docs/small_models_picture.py    # write docs/assets/small_models.svg

Means over the seeds of `benchmarks/results/credit_tiny.json` with Student's 95 % intervals. A test
compares the file with what this writes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from svg_plot import Plot, key, percent, picture, text

from pettingllms.evaluation.statistics import Interval, mean_interval

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "assets" / "small_models.svg"

sys.path.insert(0, str(ROOT / "benchmarks"))

from credit_study.tables import (  # noqa: E402  the path comes first
    TABLE,
    WAYS,
    Results,
    at_tokens,
    complete_rows,
    label_of,
    results,
    tokens_of,
)

_COLUMNS, _NUM_POINTS = 3, 13
_WIDTH, _HEAD, _ROW = 720, 46, 192
_LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 50, 38, 164, 126
_KEYS = (8, 154, 262, 338)
"""Where the ways are explained, from the left."""
_STYLE = """
.line { stroke: currentColor; stroke-width: 2; } .band { fill: currentColor; opacity: .16; }
.reinforce { color: #1f2328; }
.at_grpo { color: #d55e00; stroke-dasharray: 5 3; }
.vine { color: #009e73; stroke-dasharray: 2 2; }
.reinforce_step { color: #b0529a; stroke-dasharray: 8 2 2 2; }
@media (prefers-color-scheme: dark) {
  .reinforce { color: #f0f6fc; } .at_grpo { color: #f0883e; }
  .vine { color: #2fc79a; } .reinforce_step { color: #d98fc6; }
}
"""


def small_models_picture() -> str:
    """The picture as SVG, with a text for those who cannot see it."""
    found = results()
    rows = complete_rows(found)
    ends = "; ".join(f"{row['label']}: {_ends(found, row)}" for row in rows)
    title = f"Success on held-out levels when all tokens are sampled. {ends}."
    head = f"held-out success over sampled tokens, mean of {len(TABLE['seeds'])} seeds with 95 % "
    parts = [text(_KEYS[0], 16, f"{head}intervals")]
    parts += [key(x, 38, way, label_of(way)) for x, way in zip(_KEYS, WAYS, strict=True)]
    parts += [_panel(found, row, place) for place, row in enumerate(rows)]
    height = _HEAD + _ROW * -(-len(rows) // _COLUMNS)
    return picture(_WIDTH, height, title, _STYLE, parts)


def _ends(found: Results, row: Mapping[str, Any]) -> str:
    tokens = tokens_of(row)
    shares = {way: _success(found, row, way, tokens).value for way in _ways(found, row)}
    return ", ".join(f"{percent(share)} with {label_of(way)}" for way, share in shares.items())


def _panel(found: Results, row: Mapping[str, Any], place: int) -> str:
    """The plot of a row: bands of all ways, and lines above them."""
    down, across = divmod(place, _COLUMNS)
    left, top = _LEFT + across * _WIDTH / _COLUMNS, _HEAD + _TOP + down * _ROW
    tokens = tokens_of(row)
    plot = Plot(left, top, _PLOT_WIDTH, _PLOT_HEIGHT, tokens)
    curves = {
        way: [(at, _success(found, row, way, at)) for at in np.linspace(0, tokens, _NUM_POINTS)]
        for way in _ways(found, row)
    }
    # All bands first: none may hide a line.
    bands = [plot.band(curve, way) for way, curve in curves.items()]
    lines = [plot.line(curve, way) for way, curve in curves.items()]
    head = text(left - _LEFT + _KEYS[0], top - 18, row["label"])
    return "\n".join([head, plot.axes(), *bands, *lines])


def _ways(found: Results, row: Mapping[str, Any]) -> list[str]:
    return [way for way in WAYS if found.has(row["name"], way)]


def _success(found: Results, row: Mapping[str, Any], way: str, tokens: float) -> Interval:
    return mean_interval([at_tokens(cell, tokens) for cell in found.of(row["name"], way)])


if __name__ == "__main__":
    PICTURE.write_text(small_models_picture(), encoding="utf-8")
