"""The group of commands, each imported when it is called; where they print, and errors, too."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import pettingllms
from pettingllms.cli.options import flag
from pettingllms.errors import (
    EnvironmentNotLoadable,
    InvalidArgument,
    MissingDependency,
    PettingLLMsError,
    RunFolderError,
    UnknownEnvironment,
    UntrustedName,
)
from pettingllms.files import os_problem
from pettingllms.tables import (
    MAX_WIDTH,
    Presentable,
    TextTable,
    as_markdown,
    print_blocks,
    terminal_table,
)

# Name -> module with its function `NAME_command`, and what it does. As texts: `--help` and the
# completion of a shell import none of the commands.
_COMMANDS = {
    "list": ("catalogue", "List the installed environments."),
    "info": ("catalogue", "Show the page of an environment."),
    "play": ("play", "Play a role yourself."),
    "eval": ("evaluate", "Evaluate policies, with intervals."),
    "bench": ("bench", "Play all games and get one score."),
    "compare": ("evaluate", "Compare two runs."),
    "crossplay": ("crossplay", "Play members of different runs together."),
    "blame": ("blame", "Say which answer lost an episode."),
    "replay": ("show", "Show a recorded episode and verify it."),
    "view": ("show", "Write a run as one HTML page."),
    "data": ("data", "Check data files, export answers."),
    "check": ("check", "Check that an environment keeps the contract."),
    "package": ("new", "Package an environment for a hub."),
    "new": ("new", "Create an environment."),
    "doctor": ("check", "Report what works on this machine."),
}
# What the user mends by typing something else ends with 2; everything else with 1.
_WRONG_USE = (
    InvalidArgument,
    MissingDependency,
    UnknownEnvironment,
    EnvironmentNotLoadable,
    UntrustedName,
)


class _LazyGroup(click.Group):
    """Imports a command when it is asked for, so that `list` does not pay for `eval`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"pettingllms.cli.{_COMMANDS[cmd_name][0]}")
        return getattr(module, f"{cmd_name}_command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])


_EXAMPLES = """\b
Examples:
  pettingllms list
  pettingllms play plan_path_v0
  pettingllms eval plan_path_v0 --policy oracle
  pettingllms eval plan_path_v0 --policy openai:Qwen/Qwen3-4B@http://localhost:8000/v1
"""


@click.group(
    cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES
)
@click.version_option(pettingllms.__version__, prog_name="pettingllms")
@flag("-v", "--verbose", help="Log progress to stderr.")
def cli(verbose: bool) -> None:
    """Text environments for teams of LLM agents: look, play, evaluate, compare."""
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


def run(arguments: Sequence[str]) -> int:
    """Run the command line.

    Returns:
        0: done; 1: failed; 2: wrong use or a missing package; 130: interrupted.
    """
    try:
        # Not standalone: click would end the process, and tests call this function.
        result = cli.main(list(arguments), prog_name="pettingllms", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    # 130 is what shells say of a process that SIGINT has ended.
    except (click.Abort, KeyboardInterrupt):
        stderr().print("interrupted")
        return 130
    except _WRONG_USE as error:
        _tell(error)
        return 2
    except PettingLLMsError as error:
        _tell(error)
        return 1
    except OSError as error:
        logging.getLogger(__name__).info("where it happened:", exc_info=error)  # with --verbose
        _tell(RunFolderError(os_problem(error)))
        return 1
    return result if isinstance(result, int) else 0


def _tell(error: Exception) -> None:
    # Without markup: messages quote what was typed, which may hold square brackets.
    stderr().print(f"error: {error}", style="bold red", markup=False, highlight=False)


def stdout(max_width: int | None = None) -> Console:
    """The console of results; everything else goes to `stderr`."""
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


def plain_table(*columns: str) -> Table:
    """An empty table in the style of all commands, for rows of styled texts."""
    return terminal_table(TextTable(columns, []))


def print_result(output: str | None, found: Presentable) -> None:
    """Print what a command has found as JSON, as Markdown, or for a terminal."""
    if output == "json":
        print_json(found.to_json())
    elif output == "markdown":
        sys.stdout.write(as_markdown(found.parts()))
    else:
        print_blocks(stdout(), found.parts())
