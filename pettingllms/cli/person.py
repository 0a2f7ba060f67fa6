"""What a person at the terminal types: an answer, or one of a few commands.

Commands begin with a slash or a colon and cost no turn.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Literal

import click
from rich.console import Console

HELP = 'type your answer; """ begins and ends one of several lines; /help lists commands'

_COMMANDS = """\
/hint     what the first scripted policy would say
/prompt   show the whole prompt again
/undo     take back your last answer (and what followed)
/edit     write the answer in your editor
/quit     leave
:hint does the same as /hint. An answer that begins with / or : is typed with two of them."""

_MARKS = ("/", ":")

_FENCE = '"""'


@dataclass(frozen=True)
class Say:
    """An answer, to be given to the environment as it is."""

    text: str


Wish = Say | Literal["hint", "prompt", "undo", "quit"]
"""An answer, or what else is wanted."""


def ask(console: Console, agent: str) -> Wish:
    """Return what the person typed; the end of the input means to leave.

    Args:
        console: Where to ask.
        agent: Who is asked.
    """
    while True:
        line = _read_line(console, f"{agent}> ")
        if line is None or line.strip() in ("/quit", ":quit"):
            return "quit"
        if line.strip() == _FENCE:
            return Say(_several_lines(console))
        if not line.startswith(_MARKS):
            return Say(line)
        if line.startswith(tuple(2 * mark for mark in _MARKS)):
            return Say(line[1:])
        wish = _command(console, line.strip())
        if wish is not None:
            return wish


def _command(console: Console, name: str) -> Wish | None:
    match name[1:]:
        case "hint" | "prompt" | "undo" as wish:
            return wish
        case "edit":
            text = click.edit()
            return None if text is None else Say(text)
        case "help":
            console.print(_COMMANDS, markup=False, highlight=False)
        case _:
            console.print(f"no command {name!r}; /help lists them", style="yellow", markup=False)
    return None


def _several_lines(console: Console) -> str:
    lines: list[str] = []
    while (line := _read_line(console, "... ")) is not None and line.strip() != _FENCE:
        lines.append(line)
    return "\n".join(lines)


def _read_line(console: Console, prompt: str) -> str | None:
    """Return a line without its end; None at the end of the input."""
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # where it is missing, lines cannot be edited
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
        try:
            return input(prompt)
        except EOFError:
            console.print()
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None
