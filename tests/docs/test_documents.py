"""Documents: their blocks and cells run, links lead somewhere, they are short enough to read."""

import asyncio
import importlib
import json
import os
import re
import shlex
import sys
import tomllib
import types
from pathlib import Path

import pytest

from pettingllms import registry
from pettingllms.files import read_lines
from pettingllms.workflows import load_workflow
from pettingllms_trainers.cli import main

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("pettingllms/*/*.md")]
)
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))
"""Pages of the site; building it checks their links."""
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


NOTEBOOK = (ROOT / "docs" / "first-run.ipynb").read_text(encoding="utf-8")
CELLS = [cell for cell in json.loads(NOTEBOOK)["cells"] if cell["cell_type"] == "code"]
SHORTER = {
    "num_steps=25,": "num_steps=1, warm_start={'num_steps': 2, 'num_episodes': 8}, "
    "rollout={'num_levels': 2}, evaluation={'num_episodes': 4, 'swap_roles': False},",
    "num_levels=50": "num_levels=2",
}


def test_every_cell_is_stored_as_it_was_executed():
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    assert not any(one["output_type"] == "error" for cell in CELLS for one in cell["outputs"])
    assert "data:image/png;base64," in NOTEBOOK


@pytest.mark.slow
def test_every_cell_runs(tmp_path, monkeypatch):
    """In a running loop, as in a notebook; the first installs what a hosted one needs."""
    monkeypatch.chdir(tmp_path)
    install, *sources = ("".join(cell["source"]) for cell in CELLS)
    assert "find_spec" in install
    names, text = {}, "\0".join(sources)
    for long, short in SHORTER.items():
        assert text.count(long) == 1
        text = text.replace(long, short)

    async def run_cell(source):
        exec(source, names)

    for source in text.split("\0"):
        asyncio.run(run_cell(source))
    assert "1 of 1 train step)" in names["run"]._repr_html_()
    assert (tmp_path / "runs" / "plan_path" / "eval.json").is_file()


PAGE = (ROOT / "docs" / "bring-a-file.md").read_text(encoding="utf-8")
SMALL = str(ROOT / "tests" / "trainers" / "small_program.toml")


def blocks(kind):
    return re.findall(rf"^```{kind}([^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("others_program")
def test_the_page_is_followed_to_a_trained_team(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = {title.partition('"')[2].strip('"'): text for title, text in blocks("py")}
    for file, text in files.items():
        Path(file).write_text(text)
    assert load_workflow("shell.py:workflow").agents == ("agent_0",)
    proposing, training = (shlex.split(text) for _, text in blocks("sh"))
    assert proposing[-2] == ">"
    assert main(proposing[1:-2]) == 0
    told = capsys.readouterr()
    Path(proposing[-1]).write_text(told.out)
    assert "2 agents: Editor, Poet" in told.err
    ((_, shown),) = blocks("toml")
    proposed = tomllib.loads(told.out)
    assert proposed["env"]["id"] == f"workflow:{tmp_path}/team.py:main"
    table, same = (found["env"]["kwargs"]["program"] for found in (proposed, tomllib.loads(shown)))
    assert {**table, "clock": same["clock"]} == same
    small = [*training[1:2], SMALL, *training[2:], "--output-dir", "run"]
    assert main([*small, "--evaluation.kwargs.split=train"]) == 2, "it is not held out"
    assert main(small) == 0, capsys.readouterr().err
    assert read_lines(Path("run", "metrics.jsonl"))[-1]["rollout/num_failed_trees"] == 0
