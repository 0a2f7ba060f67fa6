"""The table of bad games: the kit notices at least nine of ten, and passes the honest ones."""

import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import pettingllms

HERE = Path(__file__).parent
MUTANTS = tomllib.loads((HERE / "mutants.toml").read_text("utf-8"))["mutant"]
SOURCES = {
    "corridor": (HERE / "conftest.py", "CorridorEnv", {}),
    "template": (
        Path(pettingllms.__file__).parent / "cli" / "template" / "my_game.py.tmpl",
        "MyGameEnv",
        {"max_turns": 3},
    ),
}
MIN_SHARE = 0.9


def game(of, was="", now=""):
    """The class of a game, with one text of its source replaced, and the arguments to check."""
    path, name, kwargs = SOURCES[of]
    source = path.read_text("utf-8")
    assert was in source, f"no longer in {path.name}: {was!r}"
    # A module of its own, which snapshots find when they are pickled.
    module = sys.modules[f"mutant_of_{of}"] = ModuleType(f"mutant_of_{of}")
    module.__file__ = str(path)
    exec(compile(source.replace(was, now), str(path), "exec"), vars(module))
    return getattr(module, name), kwargs


@pytest.mark.filterwarnings("ignore:the docstring of MyGameEnv")
@pytest.mark.parametrize("of", SOURCES)
def test_honest_games_pass(faults, of):
    kind, kwargs = game(of)
    assert faults(kind, **kwargs) == []


@pytest.mark.filterwarnings("ignore:the docstring of MyGameEnv")
def test_nine_of_ten_bad_games_are_noticed(faults, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noticed = {}
    for mutant in MUTANTS:
        kind, kwargs = game(mutant["of"], mutant["was"], mutant["now"])
        noticed[mutant["of"], mutant["kind"]] = bool(faults(kind, **kwargs))
    assert len(noticed) == len(MUTANTS), "a kind stands once"
    missed = [kind for kind, is_noticed in noticed.items() if not is_noticed]
    assert Counter(noticed.values())[True] >= MIN_SHARE * len(MUTANTS), missed
