"""The help of every command of `pettingllms`, as the program prints it."""

from __future__ import annotations

from collections.abc import Iterator

import click
from markdown_text import fenced

from pettingllms.cli.app import cli


def command_reference() -> str:
    """A section per command."""
    return "\n".join(
        f"## `{context.command_path}`\n\n{fenced(context.get_help())}"
        for context in _commands(
            click.Context(cli, info_name="pettingllms", **cli.context_settings)
        )
    )


def _commands(context: click.Context) -> Iterator[click.Context]:
    context.max_content_width = context.terminal_width = 78
    yield context
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None, name
            inner = click.Context(command, info_name=name, parent=context)
            yield from _commands(inner)
