"""Documents stay short enough to be read: the README as a whole, and the prose of every page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def words(text):
    """Count what is divided by spaces and holds a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def test_the_readme_is_read_in_a_minute():
    """Everything counts: prose, code and tables."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert words(text) <= 900


def test_the_picture_of_the_readme_is_the_one_that_its_script_draws(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from front_picture import PICTURE, front_picture

    assert PICTURE.read_text(encoding="utf-8") == front_picture(), "run: docs/front_picture.py"
