"""The picture of the page on rollouts: what is learnt from tokens that are up to k updates old.

    python docs/staleness_picture.py       # write docs/assets/staleness.svg

Means over the seeds of `benchmarks/results/staleness.json` with Student's 95 % intervals. A test
compares the file with what this writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from svg_plot import Curve, Plot, key, percent, picture, text

from pettingllms.evaluation.statistics import mean_interval

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "assets" / "staleness.svg"
RESULT = ROOT / "benchmarks" / "results" / "staleness.json"

_PLACE = (64, 40, 430, 200)
_APART = 7
"""Pixels between the intervals of two bounds at one train step."""
_STYLE = """
.end { stroke-width: 1.4; fill: none; }
.k0 { stroke: #0969da; } .k1 { stroke: #1a7f37; } .k2 { stroke: #bc4c00; } .k3 { stroke: #8250df; }
@media (prefers-color-scheme: dark) {
  .k0 { stroke: #4493f8; } .k1 { stroke: #3fb950; } .k2 { stroke: #f0883e; }
  .k3 { stroke: #ab7df8; }
}
"""


def staleness_picture() -> str:
    """The picture as SVG, with a text for those who cannot see it."""
    data = json.loads(RESULT.read_text(encoding="utf-8"))
    curves = _curves(data["runs"])
    ends = ", ".join(f"{percent(curve[-1][1].value)} with {k}" for k, curve in curves.items())
    last = next(iter(curves.values()))[-1][0]
    title = f"Greedy success on held-out levels after {last} train steps, by max_staleness: {ends}."
    plot = Plot(*_PLACE, last, pad=14)
    head = f"held-out success, mean of {len(data['seeds'])} seeds with 95 % intervals"
    parts = [plot.axes(), text(50, 24, head)]
    parts.append(text(plot.x(last / 2), 282, "train steps", anchor="middle"))
    for place, (bound, curve) in enumerate(curves.items()):
        # Beside each other, or equal ends would hide all but the last.
        shift = _APART * (place - (len(curves) - 1) / 2)
        parts += [plot.line(curve, f"k{place}", shift), _ends(plot, curve, place, shift)]
        parts.append(key(518, 56 + 22 * place, f"k{place}", f"k = {bound}"))
    return picture(600, 290, title, _STYLE, parts)


def _curves(runs: list[dict[str, Any]]) -> dict[int, Curve]:
    """The bound to its train steps, each with success over the seeds."""
    bounds = dict.fromkeys(run["bound"] for run in runs)
    found: dict[int, Curve] = {}
    for bound in bounds:
        curves = [run["greedy_curve"] for run in runs if run["bound"] == bound]
        found[bound] = [
            (points[0][0], mean_interval([share for _, share in points]))
            for points in zip(*curves, strict=True)
        ]
    return found


def _ends(plot: Plot, curve: Curve, place: int, shift: float) -> str:
    """Upright intervals beside those of the others."""
    ends = "".join(
        f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 3:.1f} {low:.1f}h6M{x - 3:.1f} {high:.1f}h6"
        for at, one in curve
        for x, low, high in [(plot.x(at) + shift, plot.y(one.low), plot.y(one.high))]
        if one.low < one.high
    )
    return f'<path class="end k{place}" d="{ends}"/>'


if __name__ == "__main__":
    PICTURE.write_text(staleness_picture(), encoding="utf-8")
