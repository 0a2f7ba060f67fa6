"""Documents stay short enough to be read: the README as a whole, and the prose of every page."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def words(text):
    """Count what is divided by spaces and holds a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("docs/**/*.md", "*/*.md", "pettingllms/*/*.md")
    for path in ROOT.glob(pattern)
)
"""Pages of the site, and documents that are parts of pages."""
_BLOCK = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- (\S+) -->.*?<!-- /\1 -->", re.DOTALL)
_NOT_PROSE = re.compile(r"^\||^:::|^ +options:|^<!--")


def prose(text):
    """Return a page without code, tables and what is generated."""
    lines = _GENERATED.sub("", _BLOCK.sub("", text)).splitlines()
    return "\n".join(line for line in lines if not _NOT_PROSE.match(line))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_one_concept(page):
    """Only prose counts: code and tables are looked up, not read."""
    assert words(prose((ROOT / page).read_text(encoding="utf-8"))) <= 1200


def test_which_algorithm_begins_with_the_decision():
    text = (ROOT / "docs" / "which-credit.md").read_text(encoding="utf-8")
    assert words(prose(text)) <= 500
    assert text.splitlines()[4].startswith("| what is rewarded | take")


def test_the_readme_is_read_in_a_minute():
    """Everything counts: prose, code and tables."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert words(text) <= 900


@pytest.mark.parametrize("name", ["front_picture", "small_models_picture", "staleness_picture"])
def test_pictures_are_those_that_their_scripts_draw(monkeypatch, name):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    script = importlib.import_module(name)
    drawn = getattr(script, name)()
    assert drawn == script.PICTURE.read_text(encoding="utf-8"), f"run: docs/{name}.py"
