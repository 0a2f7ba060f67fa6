"""Public names: documented, shown on the pages of the API, and each defined once."""

import ast
import importlib
import re
from collections import defaultdict
from pathlib import Path

import griffe
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "pettingllms", ROOT / "envs" / "pettingllms_envs")
GAMES = {path.parent.name for path in SOURCES[1].glob("*/env.py")} - {"planning"}
COMMANDS = "pettingllms.cli"
"""Its names are documented as commands."""
DEFINED_TWICE = {"Request"}
"""Names that still mean several things."""


def packages():
    folders = sorted(path.parent for path in (ROOT / "pettingllms").rglob("__init__.py"))
    names = [".".join(folder.relative_to(ROOT).parts) for folder in folders]
    return [name for name in names if hasattr(importlib.import_module(name), "__all__")]


def shown():
    """What the pages show: dotted name -> the members that are named, or None for all."""
    found = {}
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        text = page.read_text()
        for block in re.split(r"^::: ", text, flags=re.MULTILINE)[1:]:
            members = re.search(r"^ +members: \[(.*)\]$", block, re.MULTILINE)
            names = members and [name.strip() for name in members[1].split(",")]
            found[block.split()[0]] = names
    return found


@pytest.fixture(scope="module")
def tree():
    return griffe.load("pettingllms", search_paths=[ROOT])


@pytest.mark.parametrize("package", packages())
def test_public_names_exist_and_are_documented(tree, package):
    module = importlib.import_module(package)
    assert sorted(module.__all__, key=str) == sorted(set(module.__all__))
    node = tree[package.partition(".")[2]] if "." in package else tree
    for name in module.__all__:
        assert hasattr(module, name), f"{package}.{name} does not exist"
        assert name.startswith("__") or node[name].has_docstring, f"{package}.{name}: no docstring"


@pytest.mark.parametrize("package", [name for name in packages() if name != COMMANDS])
def test_public_names_are_on_the_pages(package):
    pages = shown()
    assert package in pages, f"docs/api shows no {package}"
    if pages[package] is not None:
        public = {n for n in importlib.import_module(package).__all__ if not n.startswith("__")}
        assert set(pages[package]) == public


def test_everything_that_the_pages_name_exists():
    for name, members in shown().items():
        if name.startswith("pettingllms_trainers"):
            continue
        try:
            thing = importlib.import_module(name)
        except ImportError:
            module, _, attribute = name.rpartition(".")
            if module == "pettingllms.adapters":
                continue  # needs an optional library
            thing = getattr(importlib.import_module(module), attribute)
        assert all(hasattr(thing, member) for member in members or ())


def definitions():
    """Public class name -> the modules that define it."""
    found = defaultdict(list)
    for source in SOURCES:
        for path in sorted(source.rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(path.relative_to(source).parts)
    return found


def test_a_class_name_means_one_thing():
    """A name is defined once, or once per game: then it is the same idea in each."""
    ambiguous = {
        name
        for name, places in definitions().items()
        if len(places) > 1
        and not ({place[0] for place in places} <= GAMES and len({*places}) == len(places))
    }
    assert ambiguous <= DEFINED_TWICE
    stale = {name for name in DEFINED_TWICE if len(definitions()[name]) < 2}
    assert not stale, "take them off the list"
