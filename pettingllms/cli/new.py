"""`pettingllms new`: a package with a working environment to adapt."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from pettingllms.cli.console import stdout, visible
from pettingllms.errors import InvalidArgument

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_SUFFIX = ".tmpl"
"""Keeps tools from reading the templates as part of this package."""


@click.command("new")
@click.argument("name")
@click.option(
    "--in",
    "parent",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="FOLDER",
    help="Where the folder NAME is made.  [default: here]",
)
def new_command(name: str, parent: Path) -> int:
    """Create an environment: a package with a game, tests, an entry point and a run file.

    The package works at once; its README says what to change.
    """
    written = write_package(name, parent)
    console = stdout()
    for path in written:
        console.print(visible(str(path), "green"))
    console.print(
        f"\nNext:\n  cd {parent / name}\n  pip install -e .\n  python -m pytest\n"
        f"  pettingllms eval {name}_v0 --policy oracle\n  pettingllms-train train.toml",
        markup=False,
        highlight=False,
    )
    return 0


def write_package(name: str, parent: Path) -> list[Path]:
    """Write the package and return its files.

    Args:
        name: Name of the package: lower-case words joined by `_`.
        parent: Folder in which the folder `name` is made.

    Raises:
        InvalidArgument: If the name is ill-formed or taken, or the folder exists.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InvalidArgument("name", name, "lower-case words joined by _, such as my_game")
    target = parent / name
    if target.exists():
        raise InvalidArgument("name", name, f"a name that is not taken ({target} exists)")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise InvalidArgument("name", name, "a name that no installed package has")
    words = name.split("_")
    names = {
        "my_game": name,
        "my-game": "-".join(words),
        "MyGame": "".join(word.capitalize() for word in words),
    }
    return [*_copy(files("pettingllms.cli") / "template", target, names)]


def _copy(source: Traversable, target: Path, names: dict[str, str]) -> list[Path]:
    written: list[Path] = []
    for entry in sorted(source.iterdir(), key=lambda entry: entry.name):
        name = _named(entry.name.removesuffix(_SUFFIX), names)
        if entry.is_dir():
            written += _copy(entry, target / name, names)
        elif entry.name.endswith(_SUFFIX):
            target.mkdir(parents=True, exist_ok=True)
            text = _named(entry.read_text(encoding="utf-8"), names)
            (target / name).write_text(text, encoding="utf-8")
            written.append(target / name)
    return written


def _named(text: str, names: dict[str, str]) -> str:
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text
