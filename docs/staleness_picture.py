"""The picture of the page on rollouts: what is learnt from tokens that are up to k updates old.

    python docs/staleness_picture.py       # write docs/assets/staleness.svg

Means over the seeds of `benchmarks/results/staleness.json` with Student's 95 % intervals. A test
compares the file with what this writes.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from pettingllms.evaluation.statistics import Interval, mean_interval

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "assets" / "staleness.svg"
RESULT = ROOT / "benchmarks" / "results" / "staleness.json"

_WIDTH, _HEIGHT = 600, 290
_LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 64, 40, 430, 200
_APART = 7
"""Pixels between the intervals of two bounds at one train step."""
_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.small { font-size: 12px; fill: #59636e; }
.axis { stroke: #c5cbd3; fill: none; }
.line { fill: none; stroke-width: 2.4; } .end { stroke-width: 1.4; fill: none; }
.k0 { stroke: #0969da; } .k1 { stroke: #1a7f37; } .k2 { stroke: #bc4c00; } .k3 { stroke: #8250df; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .small { fill: #9198a1; } .axis { stroke: #3d444d; }
  .k0 { stroke: #4493f8; } .k1 { stroke: #3fb950; } .k2 { stroke: #f0883e; }
  .k3 { stroke: #ab7df8; }
}
"""


def staleness_picture() -> str:
    """Return the picture as SVG, with a text for those who cannot see it."""
    data = json.loads(RESULT.read_text(encoding="utf-8"))
    curves = _curves(data["runs"])
    ends = ", ".join(f"{_percent(curve[-1][1].value)} with {k}" for k, curve in curves.items())
    last = next(iter(curves.values()))[-1][0]
    title = f"Greedy success on held-out levels after {last} train steps, by max_staleness: {ends}."
    parts = [_axes(last, len(data["seeds"]))]
    for place, (bound, curve) in enumerate(curves.items()):
        parts.append(_curve(curve, place, len(curves)))
        y = _TOP + 16 + 22 * place
        x = _LEFT + _PLOT_WIDTH + 24
        parts.append(f'<path class="line k{place}" d="M{x} {y - 4}h22"/>')
        parts.append(_text(x + 30, y, f"k = {bound}"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _curves(runs: list[dict[str, Any]]) -> dict[int, list[tuple[int, Interval]]]:
    """Return the bound to its train steps, each with success over the seeds."""
    bounds = dict.fromkeys(run["bound"] for run in runs)
    found: dict[int, list[tuple[int, Interval]]] = {}
    for bound in bounds:
        curves = [run["greedy_curve"] for run in runs if run["bound"] == bound]
        found[bound] = [
            (points[0][0], mean_interval([share for _, share in points]))
            for points in zip(*curves, strict=True)
        ]
    return found


def _curve(curve: list[tuple[int, Interval]], place: int, num: int) -> str:
    """Return a line through the means, and upright intervals beside those of the others."""
    last, shift = curve[-1][0], _APART * (place - (num - 1) / 2)
    points = [(_x(step, last) + shift, one) for step, one in curve]
    line = " ".join(f"{x:.1f},{_y(one.value):.1f}" for x, one in points)
    ends = "".join(
        f"M{x:.1f} {_y(one.low):.1f}V{_y(one.high):.1f}"
        f"M{x - 3:.1f} {_y(one.low):.1f}h6M{x - 3:.1f} {_y(one.high):.1f}h6"
        for x, one in points
        if one.low < one.high
    )
    return (
        f'<polyline class="line k{place}" points="{line}"/><path class="end k{place}" d="{ends}"/>'
    )


def _axes(last: int, num_seeds: int) -> str:
    bottom, right = _TOP + _PLOT_HEIGHT, _LEFT + _PLOT_WIDTH + 12
    parts = [f'<path class="axis" d="M{_LEFT - 16} {_TOP}V{bottom}H{right}"/>']
    parts += [_text(_LEFT - 24, _y(share) + 4, _percent(share), "end") for share in (0, 0.5, 1)]
    parts += [
        _text(_x(step, last), bottom + 20, str(step), "middle") for step in (0, last // 2, last)
    ]
    parts.append(_text(_LEFT + _PLOT_WIDTH / 2, bottom + 42, "train steps", "middle"))
    head = f"held-out success, mean of {num_seeds} seeds with 95 % intervals"
    parts.append(_text(_LEFT - 16, _TOP - 16, head))
    return "".join(parts)


def _x(step: float, last: int) -> float:
    return _LEFT + _PLOT_WIDTH * step / last


def _y(share: float) -> float:
    return _TOP + _PLOT_HEIGHT * (1 - share)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    style = f'class="small" text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(staleness_picture(), encoding="utf-8")
