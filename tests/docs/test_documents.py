"""Documents: their blocks run, their links lead somewhere, and they are short enough to be read."""

import importlib
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
import rich.theme  # noqa: F401 - draws from the global generator when first imported

from pettingllms import registry

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("pettingllms/*/*.md")]
)
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))
"""Pages of the site; building it checks their links."""
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("document", [*DOCUMENTS, *PAGES])
def test_python_blocks_run_in_order(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)  # states are pickled by their module
    for block in BLOCK.findall((ROOT / document).read_text(encoding="utf-8")):
        exec(compile(block, document, "exec"), module.__dict__)


@pytest.mark.parametrize("document", [*DOCUMENTS, *PAGES])
def test_console_blocks_run_in_order(document, tmp_path):
    for block in CONSOLE.findall((ROOT / document).read_text(encoding="utf-8")):
        for line in block.splitlines():
            program, *arguments = shlex.split(line.removeprefix("$ "))
            assert program == "pettingllms", line
            done = subprocess.run(
                [sys.executable, "-m", "pettingllms.cli", *arguments],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, line + done.stdout + done.stderr


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    path = ROOT / document
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_readme_shows_one_loop_before_line_30():
    head = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30]
    assert any("agent_iter()" in line for line in head)


def test_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make train" in text
    assert "make test" in text
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^train:", targets, re.MULTILINE)
    assert re.search(r"^test:", targets, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def words(text):
    """Count what is divided by spaces and holds a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


_BLOCK = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- (\S+) -->.*?<!-- /\1 -->", re.DOTALL)
_NOT_PROSE = re.compile(r"^\||^:::|^ +options:|^<!--")


def prose(text):
    """A page without code, tables and what is generated."""
    lines = _GENERATED.sub("", _BLOCK.sub("", text)).splitlines()
    return "\n".join(line for line in lines if not _NOT_PROSE.match(line))


@pytest.mark.parametrize("page", [one for one in (*DOCUMENTS, *PAGES) if "/" in one])
def test_a_page_has_one_concept(page):
    """Only prose counts: code and tables are looked up, not read."""
    assert words(prose((ROOT / page).read_text(encoding="utf-8"))) <= 1200


def test_which_algorithm_begins_with_the_decision():
    text = (ROOT / "docs" / "which-credit.md").read_text(encoding="utf-8")
    assert words(prose(text)) <= 500
    assert text.splitlines()[5].startswith("| what is rewarded | use")


def test_the_readme_is_read_in_a_minute():
    """Everything counts: prose, code and tables."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 900


def test_the_picture_is_that_which_its_script_draws(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    script = importlib.import_module("front_picture")
    drawn = script.front_picture()
    assert drawn == script.PICTURE.read_text(encoding="utf-8"), "run: docs/front_picture.py"
