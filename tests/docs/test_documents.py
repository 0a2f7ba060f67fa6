"""Every Python block of the documents runs, and every file that they point to exists."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("pettingllms/*/*.md")]
)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_blocks_run_in_order(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in BLOCK.findall((ROOT / document).read_text(encoding="utf-8")):
        exec(compile(block, document, "exec"), names)


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
