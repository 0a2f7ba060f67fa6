"""What the pictures of the documents share: a page of SVG, text, and plots of success."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from pettingllms.evaluation.statistics import Interval

_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.small { font-size: 12px; fill: #59636e; }
.axis { stroke: #c5cbd3; fill: none; }
.line { fill: none; stroke-width: 2.4; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .small { fill: #9198a1; } .axis { stroke: #3d444d; }
}
"""
Curve = list[tuple[float, Interval]]
"""What is on the axis, and success there."""


def picture(width: float, height: float, title: str, style: str, parts: Iterable[str]) -> str:
    """An SVG file with a text for those who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}{style.lstrip()}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, kind: str = "small", anchor: str = "start") -> str:
    """Words; `kind` is the class, `anchor` what of them is at x."""
    style = f'class="{kind}" text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def percent(share: float) -> str:
    """A share as it is written in documents."""
    return f"{100 * share:.0f} %"


def key(x: float, y: float, kind: str, label: str) -> str:
    """A piece of a line and what it stands for."""
    return f'<path class="line {kind}" d="M{x:g} {y - 4:g}h26"/>{text(x + 32, y, label)}'


class Plot(NamedTuple):
    """Where success is drawn over what grows from 0 to `last`."""

    left: float
    top: float
    width: float
    height: float
    last: float
    pad: float = 0
    """Pixels between the plot and its axes on both sides."""

    def x(self, at: float) -> float:
        """Where something on the axis is."""
        return self.left + self.width * at / self.last

    def y(self, share: float) -> float:
        """Where a share is."""
        return self.top + self.height * (1 - share)

    def axes(self) -> str:
        """The axes with three numbers each."""
        ends = (0, self.last / 2, self.last)
        bottom = self.y(0) + 18
        numbers = (text(self.x(of), bottom, f"{of:,.0f}", anchor="middle") for of in ends)
        return "".join([self.shares(), *numbers])

    def shares(self) -> str:
        """The axes with the numbers of the upright one."""
        left, right = self.left - self.pad, self.left + self.width + self.pad
        shares = (text(left - 8, self.y(of) + 4, percent(of), anchor="end") for of in (0, 0.5, 1))
        axis = f'<path class="axis" d="M{left:g} {self.top:g}V{self.y(0):g}H{right:g}"/>'
        return "".join([axis, *shares])

    def line(self, curve: Curve, kind: str, shift: float = 0) -> str:
        """A line through means, moved to the right by some pixels."""
        points = _joined((self.x(at) + shift, self.y(one.value)) for at, one in curve)
        return f'<polyline class="line {kind}" points="{points}"/>'

    def band(self, curve: Curve, kind: str) -> str:
        """The area of intervals, as far as it is within 0 and 1."""
        # A t-interval may leave the range of a share; a plot may not.
        highs = [(self.x(at), self.y(min(1, one.high))) for at, one in curve]
        lows = [(self.x(at), self.y(max(0, one.low))) for at, one in reversed(curve)]
        return f'<polygon class="band {kind}" points="{_joined(highs + lows)}"/>'


def _joined(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
