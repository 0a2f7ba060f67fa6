"""`pettingllms new`: a game that works, to adapt."""

from __future__ import annotations

import importlib.util
import keyword
import random
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table

from pettingllms.cli import options
from pettingllms.cli.app import stdout
from pettingllms.cli.package import write_tree
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument
from pettingllms.registry import make
from pettingllms.tables import visible

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_WHAT = {
    "train.toml": "teaches it to very small models",
    "pyproject.toml": "makes it a package whose environment is found by its id",
}


@click.command("new")
@click.argument("name")
@options.parent("the folder NAME")
def new_command(name: str, parent: Path) -> int:
    """Create an environment: a game for two agents in one file, with a test and a run file.

    It works at once; its comments say what to change.
    """
    written = write_package(name, parent)
    console = stdout()
    for path in written:
        line = visible(str(path), "green")
        what = "the game: make it yours" if path.name == f"{name}.py" else _WHAT.get(path.name)
        if what:
            line.append(f"  {what}", "dim")
        console.print(line, soft_wrap=True)
    console.print(_picture(_first_turn(name, parent / name)))
    console.print(
        f"\nNext:\n  cd {parent / name}\n  pip install -e .\n  python -m pytest\n"
        f"  pettingllms eval {name}_v0 --policy oracle\n  pettingllms-train train.toml",
        markup=False,
        highlight=False,
    )
    return 0


def _first_turn(name: str, folder: Path) -> list[tuple[str, str]]:
    """(title, text) of what is read, answered and earned in the first turn of the game.

    The new package is not installed: it is imported from where it lies, and leaves no cache between
    the author's files.
    """
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return _played(make(str(folder / f"{name}.py"), checks=False, render_mode="ansi"))
    finally:
        sys.dont_write_bytecode = writes
        # The package will be installed under this name: a later import must not find this one.
        sys.modules.pop(name, None)


def _played(env: TextEnv[Any]) -> list[tuple[str, str]]:
    env.reset(seed=7)
    rng = random.Random(0)
    shown: list[tuple[str, str]] = []
    while env.turn == 0 and not any(env.terminations.values()):
        agent = env.agent_selection
        text = env.scripted_action(agent, "oracle", rng)
        prompt = env.messages(agent)[-1]["content"]
        env.step(text)
        reward = f"reward {env.rewards[agent]:+.3f}"
        shown.append((f"{agent} reads", prompt))
        shown.append((f"{agent} answers, {reward}", text))
    return [*shown, ("the state after one turn", str(env.render()))]


def _picture(turn: list[tuple[str, str]]) -> RenderableType:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", justify="right")
    for title, text in turn:
        rows.add_row(title, visible(text.strip()))
    return Panel(rows, title="the game as it is now", title_align="left", expand=False)


def write_package(name: str, parent: Path) -> list[Path]:
    """Write the package and return its files.

    Raises:
        InvalidArgument: If the name is ill-formed or taken, or the folder exists.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InvalidArgument("name", name, "lower-case words joined by _, such as my_game")
    target = parent / name
    if target.exists():
        raise InvalidArgument("name", name, f"a name that is not taken ({target} exists)")
    # The file is imported by its name: a taken one would import, or shadow, somebody else's module.
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise InvalidArgument("name", name, "a name that no installed package has")
    words = name.split("_")
    names = {
        "my_game": name,
        "my-game": "-".join(words),
        "MyGame": "".join(word.capitalize() for word in words),
    }
    return list(write_tree("template", target, partial(_named, names)))


def _named(names: Mapping[str, str], text: str) -> str:
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text
