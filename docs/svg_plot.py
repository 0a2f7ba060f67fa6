"""What the pictures of the documents share: a page of SVG, text, and axes of success."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.small { font-size: 12px; fill: #59636e; }
.axis { stroke: #c5cbd3; fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .small { fill: #9198a1; } .axis { stroke: #3d444d; }
}
"""


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


class Plot(NamedTuple):
    """Where success is drawn, in pixels."""

    left: float
    top: float
    width: float
    height: float

    def y(self, share: float) -> float:
        """Where a share is."""
        return self.top + self.height * (1 - share)

    def shares(self) -> str:
        """The axes with the numbers of the upright one."""
        left, right = self.left, self.left + self.width
        shares = (text(left - 8, self.y(of) + 4, percent(of), anchor="end") for of in (0, 0.5, 1))
        axis = f'<path class="axis" d="M{left:g} {self.top:g}V{self.y(0):g}H{right:g}"/>'
        return "".join([axis, *shares])
