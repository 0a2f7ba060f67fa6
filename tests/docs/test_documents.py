"""Every Python block of the documents runs, and every file that they point to exists."""

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
