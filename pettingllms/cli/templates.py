"""Packages that commands write: trees of templates, filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

SUFFIX = ".tmpl"
"""The suffix of every template; keeps tools from reading them as part of this package."""


def write_tree(name: str, target: Path, filled: Callable[[str], str]) -> Iterator[Path]:
    """Write the files of a tree of templates; yield their paths.

    Args:
        name: Folder of the tree, in this package.
        target: Folder that they are written into.
        filled: Fills in a name or the content of a file.
    """
    yield from _written(files("pettingllms.cli") / name, target, filled)


def _written(source: Traversable, target: Path, filled: Callable[[str], str]) -> Iterator[Path]:
    for entry in sorted(source.iterdir(), key=lambda entry: entry.name):
        path = target / filled(entry.name.removesuffix(SUFFIX))
        if entry.is_dir():
            yield from _written(entry, path, filled)
        elif entry.name.endswith(SUFFIX):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(filled(entry.read_text(encoding="utf-8")), encoding="utf-8")
            if path.suffix == ".sh":
                path.chmod(0o755)
            yield path
