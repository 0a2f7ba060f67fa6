"""Headings, paragraphs and tables as values, with a printer each for terminals, Markdown and HTML.

Names of policies and models, and what models wrote, come from files: no printer lets a text end a
cell, begin markup, or give a terminal an order.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:  # rich is an optional package, which only terminals need
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


class TextTable(NamedTuple):
    """Texts in columns."""

    head: Sequence[str]
    """Headings of the columns; all empty: a table without a head."""
    rows: Sequence[Sequence[str]]
    """Texts of the cells, row by row; each row has as many as `head`."""
    title: str = ""
    """What stands above the table; empty: nothing."""
    right: Sequence[int] = ()
    """Numbers of the columns that are aligned to the right, from 0."""


Block = str | TextTable
"""A table, a paragraph, or a heading that begins with `#`."""


class Presentable(Protocol):
    """What a command has found: data for programs, blocks for people."""

    def to_json(self) -> dict[str, Any]:
        """JSON data without infinities."""
        ...

    def parts(self) -> list[Block]:
        """Headings, paragraphs and tables."""
        ...


MAX_WIDTH = 160
"""Columns to print in where the output is not a terminal; a width of 80 would fold tables."""


def as_markdown(blocks: Iterable[Block]) -> str:
    """Blocks as Markdown, each followed by an empty line."""
    return "\n".join(
        f"{block}\n" if isinstance(block, str) else _markdown_table(block) for block in blocks
    )


def _markdown_table(table: TextTable) -> str:
    rule = ["---:" if column in table.right else "---" for column in range(len(table.head))]
    lines = [table.head, rule, *table.rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    title = f"**{table.title}**\n\n" if table.title else ""
    return title + "".join(f"| {' | '.join(line)} |\n" for line in cells)


def as_html(blocks: Iterable[Block]) -> str:
    """Blocks as HTML elements, all texts escaped."""
    return "\n".join(map(_html_block, blocks))


def _html_block(block: Block) -> str:
    if isinstance(block, str):
        text = block.lstrip("#")
        name = f"h{len(block) - len(text)}" if text != block else "p"
        return f"<{name}>{html.escape(text.strip())}</{name}>"
    lines = [("th", block.head), *(("td", row) for row in block.rows)]
    rows = ("".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) for tag, row in lines)
    title = f"<caption>{html.escape(block.title)}</caption>" if block.title else ""
    return f"<table>{title}" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def print_blocks(console: Console, blocks: Iterable[Block]) -> None:
    """Print blocks to a terminal, with an empty line between them."""
    for number, block in enumerate(blocks):
        if number:
            console.print()
        if isinstance(block, str):
            console.print(visible(block.lstrip("# "), "bold cyan" if block[0] == "#" else ""))
        else:
            console.print(fitted_table(block, console))


def fitted_table(table: TextTable, console: Console, interval: str = " [", **style: Any) -> Table:
    """A table for a terminal, whose intervals begin lines of their own if it is too narrow.

    Args:
        table: The table.
        console: Where it will be printed.
        interval: Beginning of an interval within a cell, after a space.
        **style: As for `terminal_table`.
    """
    wide = terminal_table(table, **style)
    # Measured without the limit of the terminal, which would hide how wide the table wants to be.
    unlimited = console.options.update(max_width=MAX_WIDTH)
    if console.measure(wide, options=unlimited).maximum <= console.width:
        return wide
    rows = [[c.replace(interval, "\n" + interval[1:]) for c in row] for row in table.rows]
    return terminal_table(table._replace(rows=rows), **style)


def terminal_table(
    table: TextTable, *, styles: Sequence[str] = (), folds: bool = True, **style: Any
) -> Table:
    """A table for a terminal.

    Args:
        table: The table.
        styles: Styles of the first columns, as rich writes them.
        folds: Whether long cells are folded: keys and paths are there to be copied. Else they are
            cut off at the edge.
        **style: How it differs from the plain style of all commands: arguments of rich's `Table`.
    """
    from rich.markup import escape
    from rich.table import Table

    plain: dict[str, Any] = {"box": None, "pad_edge": False, "title_justify": "left"}
    found = Table(title=escape(table.title) or None, show_header=any(table.head), **(plain | style))
    for column, name in enumerate(table.head):
        found.add_column(
            visible(name),
            header_style="bold",
            style=styles[column] if column < len(styles) else "",
            justify="right" if column in table.right else "left",
            overflow="fold" if folds else "ellipsis",
            no_wrap=not folds,
        )
    for row in table.rows:
        found.add_row(*map(visible, row))
    return found


def visible(text: str, style: str = "") -> Text:
    """A text as it is, with what a terminal would obey made visible.

    An escape sequence in a completion is shown, never carried out, and no markup is read from it.
    """
    from rich.text import Text

    shown = "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)
    return Text(shown, style=style)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
