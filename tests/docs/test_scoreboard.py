"""The page of what repeats: its statuses are in its legend, and what its rows name is there."""

import importlib
import itertools
import re
import shlex
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from pettingllms.evaluation.statistics import mean_interval

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "scoreboard.md"
TEXT = PAGE.read_text(encoding="utf-8")
STATUSES = {"repeated", "laptop", "not repeated", "GPU", "missing"}
HEAD = ["claim", "paper", "status", "here", "command"]
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
_OPTIONS_OF_COMMANDS = {"--gpus"}
"""Of `pettingllms-train` itself, each with a value; all others are keys of the run file."""


class Row(NamedTuple):
    claim: str
    paper: str
    status: str
    here: str
    command: str


def rows_of(text):
    """The rows of the tables, with the command that "the same" stands for."""
    found = []
    for table in re.findall(r"(?:^\|[^\n]*\n)+", text, re.MULTILINE):
        head, _, *rows = (
            [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()
        )
        assert head == HEAD
        command = ""
        for row in rows:
            command = command if row[-1] == "the same" else row[-1]
            found.append(Row(*row[:-1], command))
    return found


def commands_of(text):
    for name, value in re.findall(r'^(TINY|EXACT)="(.*)"$', TEXT, re.MULTILINE):
        text = text.replace(f"${name}", value)
    return re.findall(r"`((?:python|pytest|pettingllms-train) [^`]+)`", text)


def check_command(command):
    """Fail if a file, a function, a recipe or an option that a command names is not there."""
    program, *words = shlex.split(command)
    {"python": _script, "pytest": _tests, "pettingllms-train": _training}[program](words)


def _script(words):
    script, *options = words
    paths = [ROOT / script, ROOT / "benchmarks" / "suites" / "measuring.py"]
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    assert all(f'"{word}"' in source for word in options if word.startswith("--")), options
    given = dict(itertools.pairwise(options))
    if "--config" in given:
        _training([given["--config"]])
    if Path(script).name == "study.py":
        layer, text = options[0], given.get("--only", "")
        assert any(text in key for key in _keys(layer)), text


def _keys(layer):
    table = importlib.import_module("credit_study.rows")
    return [cell.key for cell in table.cells_of(table.read_table(), layer)]


def _tests(words):
    for word in words:
        path, _, name = word.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), word


def _training(words):
    from pettingllms_trainers.config.loading import load_config

    shown = re.search(r'^PAPER="(.*)"$', TEXT, re.MULTILINE)[1].split()
    words = [one for word in words for one in (shown if word == "$PAPER" else [word])]
    if words[0] in ("launch", "plan"):
        del words[0]
    for name in _OPTIONS_OF_COMMANDS & {*words}:
        del words[words.index(name) : words.index(name) + 2]
    files = [word for word in words if word.startswith("recipe:")]
    assert files
    assert words[: len(files)] == files
    load_config(files, words[len(files) :])


@pytest.fixture
def tables(monkeypatch):
    """The module that reads the results of the study."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("credit_study.tables")


def test_the_legend_has_the_statuses():
    assert set(re.findall(r"^- \*\*([\w ]+)\*\*: ", TEXT, re.MULTILINE)) == STATUSES


def test_every_row_has_a_status_and_a_command():
    rows = rows_of(TEXT)
    assert len(rows) >= 40
    for row in rows:
        assert row.status in STATUSES
        assert row.claim
        assert row.status == "missing" or commands_of(row.command)


@pytest.mark.parametrize("command", dict.fromkeys(commands_of(TEXT)))
def test_what_a_command_names_is_there(command, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    check_command(command)


def test_links_lead_to_a_heading():
    for path, heading in _LINK.findall(TEXT):
        text = (PAGE.parent / path).read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
        assert not heading or heading in slugs, (path, heading)


@pytest.mark.parametrize(
    ("claim", "name"),
    [
        ("AT-GRPO beats GRPO in Plan-Path", "plan_path_hard, shaped"),
        ("in Sokoban", "sokoban, shaped"),
        ("in Sudoku", "sudoku_6x6, shaped"),
        ("in mathematics", "arithmetic, shaped"),
    ],
)
def test_the_status_of_a_row_is_what_the_table_of_small_models_has(claim, name, tables):
    (row,) = (row for row in rows_of(TEXT) if row.claim == claim)
    found = tables.results()
    mean = partial(tables.over_tokens, tokens=tables.tokens_of(found.rows[name]))
    low = mean_interval(found.differences((name, "at_grpo"), (name, "reinforce"), mean))[1]
    assert row.status == ("laptop" if low > 0 else "not repeated")


def test_no_figure_of_this_project_is_typed():
    """Of rows with results, where a figure is what the template computes."""
    source = (ROOT / "benchmarks" / "tables.jinja").read_text(encoding="utf-8")
    rows = [
        line.split(" | ")
        for line in source.splitlines()
        if re.search(r"\| (laptop|not repeated) \|", line)
    ]
    assert len(rows) > 20
    for row in rows:
        computed = re.sub(
            r"\{\{.*?\}\}|\([^)]*\)|6x6|K = 2, 4, 8|SmolLM2|Lemma 1", "", " | ".join(row[3:-1])
        )
        assert not re.search(r"\d", computed), row
