"""Where the commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pettingllms.evaluation.presentation import (
        Part,
        TextTable,
    )  # slow, and not every command has any

_WIDTH_OF_FILES = 160
"""Columns when the output is not a terminal; a width of 80 would fold tables."""


def stdout(max_width: int | None = None) -> Console:
    """Return the console of results.

    Args:
        max_width: Maximum number of columns to use; None: all there are.
    """
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_FILES)
    if max_width is not None:
        console.width = min(console.width, max_width)
    return console


def stderr() -> Console:
    """Return the console of messages and progress."""
    return Console(stderr=True, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print JSON data, and nothing else, to stdout."""
    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def visible(text: str, style: str = "") -> Text:
    """Return model text as it is, with what a terminal would obey made visible.

    An escape sequence in a completion is shown, never carried out, and no markup is read from it.
    """
    shown = "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)
    return Text(shown, style=style)


def plain_table(*columns: str, title: str = "") -> Table:
    """Return an empty table of left-aligned columns in the style of all commands."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, header_style="bold", overflow="fold")
    return table


def print_parts(console: Console, parts: Iterable[Part]) -> None:
    """Print headings, paragraphs and tables, with an empty line between them."""
    for number, part in enumerate(parts):
        if number:
            console.print()
        if isinstance(part, str):
            console.print(visible(part.lstrip("# "), "bold cyan" if part[0] == "#" else ""))
        else:
            table = _as_table(part, " [")
            unlimited = console.options.update(max_width=_WIDTH_OF_FILES)
            if console.measure(table, options=unlimited).maximum > console.width:
                table = _as_table(part, "\n[")
            console.print(table)


def _as_table(part: TextTable, interval: str) -> Table:
    """Return the table of a part; where it is too narrow, intervals begin lines of their own."""
    table = plain_table(*part.head)
    for row in part.rows:
        table.add_row(*(visible(cell.replace(" [", interval)) for cell in row))
    return table


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
