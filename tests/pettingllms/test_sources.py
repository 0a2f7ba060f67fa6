"""What has no id is named by its place, and the name that a run records means the same anywhere."""

import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pettingllms
from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument, UnknownEnvironment
from pettingllms.evaluation import EvaluationPlan
from pettingllms.sources import absolute, short_name
from pettingllms.testing.report import Subject

FILES = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with files whose modules no other test imports; the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder, path, *classes):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(FILES["game"].format(name=name) for name in classes))
    return file


def said(env):
    env.reset(seed=0)
    return env.last()[0]


@pytest.mark.parametrize(
    ("source", "recorded"),
    [
        ("say_game.py", "say_game.py"),
        ("say_game.py:Say", "say_game.py:Say"),
        ("./say_game.py:Say", "say_game.py:Say"),
        ("say_game:Say", "say_game.py:Say"),
        ("say_pack.inner:Say", "say_pack/inner.py:Say"),
        ("say_pack:Say", "say_pack/__init__.py:Say"),
    ],
)
def test_every_spelling_is_recorded_so_that_it_is_found_from_anywhere(
    folder, monkeypatch, source, recorded
):
    for path in ("say_game.py", "say_pack/__init__.py", "say_pack/inner.py"):
        written(folder, path, "Say")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    expected = f"{folder}/{recorded}"
    assert absolute(source) == absolute(absolute(source)) == expected
    env = pettingllms.make(source, word="no")
    assert (env.unwrapped.spec.id, said(env)) == (expected, "no")
    assert EvaluationPlan(env_id=source, variants={"main": {}}).env_id == expected
    monkeypatch.chdir(elsewhere)
    assert said(pettingllms.make(expected)) == "yes"


def test_an_installed_module_keeps_its_name(folder):
    assert absolute("pettingllms_envs.sokoban:SokobanEnv") == "pettingllms_envs.sokoban:SokobanEnv"
    assert absolute("sokoban_v0") == "sokoban_v0"
    written(folder, "json.py", "Say")  # installed modules are found before those here
    assert absolute("json:Say") == "json:Say"


def test_a_workflow_of_a_file(folder):
    (folder / "say_team.py").write_text(FILES["team"])
    for source in ("workflow:say_team.py:team", "workflow:say_team:team"):
        env = pettingllms.make(source)
        assert env.unwrapped.spec.id == f"workflow:{folder}/say_team.py:team"
        assert said(env) == "say yes"


def test_a_source_is_made_again_in_another_process(folder):
    written(folder, "say_other.py", "Say")
    maker = pickle.dumps(Subject("say_other.py", {}).maker)
    code = f"import pickle; print(pickle.loads({maker!r})().spec.id)"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{folder}/say_other.py"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("plan_path_v0", "plan_path_v0"),
        ("/a/b/game.py", "game"),
        ("/a/b/__init__.py", "b"),
        ("/a/b/game.py:Say", "Say"),
        ("workflow:pack.team:solver", "solver"),
    ],
)
def test_short_names(source, name):
    assert short_name(source) == name


@pytest.mark.parametrize(
    ("source", "kind", "told"),
    [
        ("lost.py", EnvironmentNotLoadable, r"there is no file .*/lost\.py"),
        ("lost_module:Say", EnvironmentNotLoadable, "or in the working directory, /"),
        ("say_two.py", EnvironmentNotLoadable, r"several environments: One, Two; name one"),
        ("say_none.py", EnvironmentNotLoadable, "defines no environment"),
        ("say_two.py:Three", EnvironmentNotLoadable, "no attribute 'Three'"),
        ("say_none.py:NUMBER", EnvironmentNotLoadable, "workflow:module:name"),
        (
            "say_none.py:make",
            EnvironmentNotLoadable,
            "allowed: a class derived from pettingllms.TextEnv",
        ),
        ("json.py", EnvironmentNotLoadable, "give the file another name"),
        ("say_broken.py", EnvironmentNotLoadable, "ZeroDivisionError: "),
        ("say two:Say", InvalidArgument, r"package\.module:Name, file\.py or file\.py:Name"),
        ("workflow:say_none", InvalidArgument, "after workflow:"),
        ("say_two", UnknownEnvironment, r"or name its place: .*file\.py"),
    ],
)
def test_what_is_not_there_says_what_to_do(folder, source, kind, told):
    written(folder, "say_two.py", "One", "Two")
    written(folder, "json.py", "Say")
    (folder / "say_none.py").write_text("NUMBER = 3\ndef make(): return 3\n")
    (folder / "say_broken.py").write_text("1 / 0\n")
    with pytest.raises(kind, match=told):
        pettingllms.make(source)
