"""One grammar for what is named by its place, and `EnvSpec`: how an environment is made.

Environments and workflows that no package announces are named by their place:

```
sokoban_v0                  an installed environment: its id, which is not a source
package.module:Class        of an installed module, or of one in the working directory
game.py:Class               of a file; relative paths begin in the working directory
game.py                     the only environment that the file defines
workflow:package.module:name, workflow:team.py:name     see `pettingllms.workflows`
```

Where a run is wanted, `run:FOLDER` is its folder, and `recipe:NAME` one that has not begun.

A run records the absolute form of what it used, so that it is found again from anywhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pettingzoo import AECEnv

from pettingllms.errors import FOREIGN, EnvironmentNotLoadable, InvalidArgument, suggestion, told

WORKFLOW_PREFIX = "workflow:"
"""Begins the names of workflows."""
RUN, RECIPE = "run:", "recipe:"
"""What names of runs and recipes begin with, among names of environments or policies."""
GRAMMAR = "package.module:Name, file.py or file.py:Name"

_FILE = re.compile(r"(.*[^/\\]\.py)(?::([A-Za-z_]\w*))?")
_MODULE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
_PACKAGE_FILE = "__init__.py"


class _Place(NamedTuple):
    """Where something is."""

    where: str
    """A module, or the path of a file."""
    name: str
    """Its name there; empty: the only environment."""

    @property
    def is_file(self) -> bool:
        return self.where.endswith(".py")

    @property
    def text(self) -> str:
        return f"{self.where}:{self.name}" if self.name else self.where


def run_directory(text: str | Path) -> Path:
    """The folder of a run, which may be named `run:FOLDER`."""
    return Path(str(text).removeprefix(RUN))


def nearby(path: str | Path) -> str:
    """`suggestion` for a path, among what lies beside it; empty if it is there."""
    folder, name = os.path.split(os.path.abspath(path))
    is_there = os.path.exists(path) or not os.path.isdir(folder)
    return "" if is_there else suggestion(name, os.listdir(folder))


def is_source(text: str) -> bool:
    """Whether a text names a place, rather than what is installed under an id."""
    return ":" in text or text.endswith(".py")


def absolute(text: str) -> str:
    """A name that means the same in every working directory; an id is one already.

    A module of the working directory becomes its file. Nothing is imported.

    Raises:
        InvalidArgument: The text is ill-formed.
    """
    if not is_source(text):
        return text
    prefix, place = _parts(text)
    file = Path(place.where).expanduser() if place.is_file else _file_here(place.where)
    if file is None:
        return text
    return prefix + place._replace(where=str(file.resolve())).text


def short_name(text: str) -> str:
    """What folders, metrics and titles call an environment: of a source, the last name."""
    if not is_source(text):
        return text
    _, place = _parts(text)
    if place.name:
        return place.name
    file = Path(place.where)
    return file.parent.name if file.name == _PACKAGE_FILE else file.stem


def load_source(text: str, what: str, *, is_installed: bool = False) -> Any:
    """Import a module or file, and return what a text names in it.

    Modules of the working directory are found after installed ones. The folder of a file stays on
    the path of modules, so that what it imports and what is sent to other processes is found.

    Args:
        text: A source without the prefix of workflows.
        what: What it is, for errors, as the subject of a sentence.
        is_installed: Whether a package announces it: the working directory, which may be a
            stranger's, then stays off the path, also for what an optional import would find there.

    Raises:
        InvalidArgument: The text is ill-formed.
        EnvironmentNotLoadable: The import fails, or finds nothing of the name.
    """
    _, place = _parts(text)
    try:
        if place.is_file:
            module = _imported_file(Path(place.where).expanduser().absolute())
        else:
            if not is_installed and place.where not in sys.modules:
                _look_in(Path.cwd())
            module = importlib.import_module(place.where)
        return getattr(module, place.name) if place.name else _only_environment(module)
    except FOREIGN as error:
        why = str(error) if isinstance(error, _NotThere) else told(error)
        lost = error.name if isinstance(error, ModuleNotFoundError) else None
        if lost and f"{place.where}.".startswith(f"{lost}."):
            why += f"; modules are installed ones, or in the working directory, {os.getcwd()}"
        raise EnvironmentNotLoadable(f"{what} cannot be loaded: {why}") from error


@dataclass(frozen=True)
class EnvSpec:
    """How an environment is made."""

    id: str
    """Versioned name, `<name>_v<number>`, of which a change of behaviour is a new number; or an
    absolute source, see `pettingllms.sources`."""
    entry_point: str | Callable[..., Any]
    """The source of the `TextEnv` class or factory, or the callable itself."""
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments that `make` passes on."""
    package: str = ""
    """The distribution that provides it; empty when it was registered by a call."""

    @property
    def origin(self) -> str:
        """` of the package ...`, for messages; empty when it was registered by a call."""
        return f" of the package {self.package!r}" if self.package else ""

    def load(self) -> Callable[..., Any]:
        """Import and return the class or factory.

        Raises:
            EnvironmentNotLoadable: If the import fails, or finds nothing that can be called; the
                cause is chained.
        """
        if callable(self.entry_point):
            return self.entry_point
        what = f"environment {self.id!r}{self.origin}"
        if self.entry_point != self.id:
            what += f", announced as {self.entry_point!r},"
        factory = load_source(self.entry_point, what, is_installed=bool(self.package))
        if not callable(factory):
            raise EnvironmentNotLoadable(
                f"{what} cannot be loaded: {factory!r} is not a class or function; a workflow is "
                "named workflow:module:name"
            )
        return factory


class _NotThere(Exception):
    """What a source names is not there; the message says why."""


def _parts(text: str) -> tuple[str, _Place]:
    """The prefix of a workflow, or an empty one, and the place.

    Raises:
        InvalidArgument: The text is ill-formed.
    """
    prefix = WORKFLOW_PREFIX if text.startswith(WORKFLOW_PREFIX) else ""
    rest = text.removeprefix(prefix)
    found = _FILE.fullmatch(rest) or _MODULE.fullmatch(rest)
    is_run = text.startswith((RUN, RECIPE))
    if found is None or is_run:
        hint = "This names a run, which has an environment." if is_run else ""
        raise InvalidArgument("source", text, f"{GRAMMAR}; of a workflow, after workflow:", hint)
    return prefix, _Place(found[1], found[2] or "")


def _imported_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise _NotThere(f"there is no file {file}")
    root, name = _module_of(file)
    _look_in(root)
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None or not os.path.samefile(found.origin, file):
        other = "none" if found is None else f"that of {found.origin}"
        raise _NotThere(f"the module {name!r} is {other}, not {file}; give the file another name")
    return importlib.import_module(name)


def _only_environment(module: ModuleType) -> Any:
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, AECEnv)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]
    if len(names) != 1:
        which = f"several environments: {', '.join(names)}" if names else "no environment"
        raise _NotThere(f"the file defines {which}; name one, as in file.py:Class")
    return getattr(module, names[0])


def _file_here(module: str) -> Path | None:
    """The file of a module of the working directory; None of an installed one."""
    here = Path.cwd()
    stem = here.joinpath(*module.split("."))
    candidates = (stem.with_name(f"{stem.name}.py"), stem / _PACKAGE_FILE)
    file = next((path for path in candidates if path.is_file()), None)
    if file is None or _module_of(file) != (here, module):
        return None
    importlib.invalidate_caches()
    top = PathFinder.find_spec(module.partition(".")[0], [*sys.path, str(here)])
    is_here = top is not None and top.origin is not None and here in Path(top.origin).parents
    return file if is_here else None


def _module_of(file: Path) -> tuple[Path, str]:
    """The folder from which a file is imported, and the name of its module."""
    names = [] if file.name == _PACKAGE_FILE else [file.stem]
    folder = file.parent
    while (folder / _PACKAGE_FILE).is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


def _look_in(folder: Path) -> None:
    """Have modules of a folder found, after all others."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()  # a file may be younger than the last look at its folder
