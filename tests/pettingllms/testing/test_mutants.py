"""The table of bad games: each is noticed by the check that it names, nine of ten are noticed."""

import importlib
import sys
import tomllib
from pathlib import Path
from textwrap import indent
from types import ModuleType

import pytest

import pettingllms
from pettingllms.testing import CHECKS, CheckStatus
from pettingllms.testing.conformance import finding_of
from pettingllms.testing.interface import check_other_process
from pettingllms.testing.report import Subject

HERE = Path(__file__).parent
TEMPLATE = Path(pettingllms.__file__).parent / "cli" / "template" / "my_game.py.tmpl"
SINGLE = {"team": "single"}
SOURCES = {
    "corridor": (HERE / "conftest.py", "CorridorEnv", {}),
    "guess": (HERE.parent / "conftest.py", "GuessEnv", {"simultaneous": True}),
    "template": (TEMPLATE, "MyGameEnv", {"max_turns": 3}),
    "blocksworld": ("pettingllms_envs.blocksworld", "BlocksworldEnv", SINGLE),
    "dining": ("pettingllms_envs.dining", "DiningEnv", {"philosophers": 4, "meals": 1}),
    "fireworks": ("pettingllms_envs.fireworks", "FireworksEnv", {}),
    "panel": ("pettingllms_envs.panel", "PanelEnv", {}),
    "plan_path": ("pettingllms_envs.plan_path", "PlanPathEnv", SINGLE),
    "plan_path of two": ("pettingllms_envs.plan_path", "PlanPathEnv", {"team": "proposer-planner"}),
    "queens": ("pettingllms_envs.queens", "QueensEnv", SINGLE),
    "relay": ("pettingllms_envs.relay", "RelayEnv", {}),
    "search": ("pettingllms_envs.search", "SearchEnv", {}),
    "sokoban": ("pettingllms_envs.sokoban", "SokobanEnv", SINGLE),
    "sudoku": ("pettingllms_envs.sudoku", "SudokuEnv", SINGLE),
}
"""Honest game -> its source or its package of games, its class, and the arguments to check."""

GAMES = [of for of, (source, _, _) in SOURCES.items() if source == f"pettingllms_envs.{of}"]
FORMS = {
    "adds": "{}",
    "act": "def _act(self, state, agent, action):\n"
    "    done = super()._act(state, agent, action)\n    return {}",
    "step": "def step(self, action):\n"
    "    agent = self.agent_selection\n"
    "    was_live = not (self.terminations[agent] or self.truncations[agent])\n"
    "    super().step(action)\n    if was_live:\n{}",
}
MIN_SHARE = 0.9


TABLE = tomllib.loads((HERE / "mutants.toml").read_text("utf-8"))


def bad_games():
    """The rows of the table; one for each game where a row is of all."""
    return [
        {**row, "of": of}
        for row in TABLE["mutant"]
        for of in (GAMES if row["of"] == "games" else [row["of"]])
    ]


def game(of, was="", now="", given=(), **forms):
    """The class of a changed game, and the arguments to check."""
    source, name, kwargs = SOURCES[of]
    # A module of its own, which snapshots find when they are pickled.
    module = sys.modules["a_bad_game"] = ModuleType("a_bad_game")
    if isinstance(source, Path):
        text = source.read_text("utf-8")
        assert was in text, f"no longer in {source.name}: {was!r}"
        module.__file__ = str(source)
        exec(compile(text.replace(was, now), str(source), "exec"), vars(module))
    else:
        setattr(module, name, getattr(importlib.import_module(source), name))
    for form in forms.keys() & FORMS.keys():
        body = indent(forms[form], "        ") if form == "step" else forms[form]
        methods = indent(f"__doc__ = {name}.__doc__\n{FORMS[form].format(body)}", "    ")
        exec(f"from pettingllms import ParseError\nclass Changed({name}):\n{methods}", vars(module))
        name = "Changed"
    return getattr(module, name), {**kwargs, **dict(given)}


def broken(row, checks=CHECKS):
    """What the checks find in a bad game: name of the check -> what it says."""
    kind, kwargs = game(**row)
    subject = Subject(kind, kwargs)
    found = [finding_of(check, subject) for check in checks]
    return {f.check: str(f) for f in found if f.status is CheckStatus.BROKEN}


def cases(rows, by_day):
    """Pytest's cases of rows; those of other games than the ones by day are for the night."""
    return [
        pytest.param(
            row,
            id=f"{row['of']}: {row['kind']}",
            marks=[] if row["of"] in by_day else pytest.mark.nightly,
        )
        for row in rows
    ]


ROWS = [row for row in bad_games() if "check" in row]
pytestmark = pytest.mark.filterwarnings("ignore:the docstring of MyGameEnv")


@pytest.mark.parametrize("row", cases(ROWS, {"corridor", "template", "guess", "panel", "sokoban"}))
def test_bad_games_are_named_by_the_check_that_is_for_them(row, mention, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them leaves files where it is played
    (check,) = (check for check in CHECKS if check.__name__ == f"check_{row['check']}")
    mention(broken(row, [check]).values(), row.get("says", ""))


HONEST = [{"kind": "as it is", "of": "corridor"}, {"kind": "as it is", "of": "template"}]


@pytest.mark.parametrize("row", cases([*HONEST, *TABLE["good"]], {"corridor", "template", "guess"}))
def test_good_games_pass(row):
    assert broken(row) == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row["kind"] == "texts depend on hash()"])
def test_what_functions_make_is_sent_to_other_processes_too(faults, mention, row):
    kind, _ = game(**row)
    mention(faults(lambda: kind(longest=30), [check_other_process]), row["says"])


def test_nine_of_ten_bad_games_are_noticed():
    names = [(row["of"], row["kind"]) for row in bad_games()]
    assert len(set(names)) == len(names) >= 100, "a kind stands once for each game"
    assert len(ROWS) >= MIN_SHARE * len(names)
