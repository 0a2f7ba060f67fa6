"""Markdown from values: tables, fenced texts, paragraphs inside of other blocks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""Root folder of the repository."""
PROSE = "{ .text .prose }"
"""Language of a fenced block whose long lines are wrapped; see `assets/site.css`."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; line ends within cells become spaces."""
    lines = [header, ["---"] * len(header), *rows]
    cells = [[" ".join(cell.split()) for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def code(value: object) -> str:
    """A value as inline code that is safe in a table."""
    text = str(value)
    return f"<code>{_html(text)}</code>" if "|" in text or "`" in text else f"`{text}`"


def breakable(name: str) -> str:
    """A long name as inline code whose line may end after `/`, `:` and `_`."""
    text = re.sub(r"(/|::?|_)", r"\1<wbr>", _html(name))
    return f"<code>{text}</code>"


def fenced(text: str, language: str = "text") -> str:
    """A text as a fenced block that no backticks in it can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def folded(title: str, body: str, *, is_open: bool = False) -> str:
    """A block that the reader unfolds."""
    mark = "???+" if is_open else "???"
    return f'{mark} note "{title}"\n\n{textwrap.indent(body, "    ")}\n'


def _html(text: str) -> str:
    return escape(text, quote=False).replace("|", "&#124;").replace("`", "&#96;")
