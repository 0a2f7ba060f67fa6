"""The layout that README and CONTRIBUTING show is the layout of the repository."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pettingllms", "envs/pettingllms_envs", "trainers/pettingllms_trainers")
TREE = re.compile(r"<!-- layout -->\n```\n(.*?)```\n<!-- /layout -->", re.DOTALL)


def entries(document):
    """Return path -> reason; an indented entry lies in the last one that is not indented."""
    (tree,) = TREE.findall((ROOT / document).read_text(encoding="utf-8"))
    found, parent = {}, ""
    for line in tree.splitlines():
        name, reason = line.split(maxsplit=1)
        if not line.startswith(" "):
            parent = name
        path = parent + name if line.startswith(" ") else name
        assert path not in found, f"{path} is named twice"
        found[path] = reason
    return found


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_entry_exists_and_has_a_reason(document):
    for path, reason in entries(document).items():
        assert (ROOT / path).exists(), path
        assert (ROOT / path).is_dir() == path.endswith("/"), path
        assert 4 <= len(reason.split()) <= 9, f"{path}: {reason}"


def test_the_readme_names_every_package():
    named = entries("README.md")
    for package in PACKAGES:
        folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert folders
        for folder in folders:
            assert f"{package}/{folder}/" in named
