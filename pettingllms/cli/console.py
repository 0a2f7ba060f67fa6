"""Where the commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from pettingllms.tables import (
    MAX_WIDTH,
    Presentable,
    TextTable,
    as_markdown,
    print_blocks,
    terminal_table,
)


def stdout(max_width: int | None = None) -> Console:
    """The console of results."""
    # A pipe has no width, for which rich takes 80 columns: tables in files would be cut.
    console = Console(width=None if sys.stdout.isatty() else MAX_WIDTH)
    if max_width is not None:
        console.width = min(console.width, max_width)
    return console


def stderr() -> Console:
    """The console of messages and progress."""
    # Messages hold commands to copy: no line is broken where the terminal ends.
    return Console(stderr=True, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print JSON data, and nothing else, to stdout."""
    # Not through rich, which would wrap long texts; and NaN is no JSON to other programs.
    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def plain_table(*columns: str, title: str = "") -> Table:
    """An empty table in the style of all commands, for rows of styled texts."""
    return terminal_table(TextTable(columns, [], title))


def print_result(output: str, found: Presentable) -> None:
    """Print what a command has found as the option `--format` says."""
    if output == "json":
        print_json(found.to_json())
    elif output == "markdown":
        sys.stdout.write(as_markdown(found.parts()))
    else:
        print_blocks(stdout(), found.parts())
