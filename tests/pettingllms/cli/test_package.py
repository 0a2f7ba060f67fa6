"""Packages for hubs are complete, well-formed and true. Hubs' own readers: tests of adapters."""

import json
import os
import random
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution as Distribution

import pytest
from packaging.requirements import Requirement

import pettingllms
from pettingllms.cli.app import run
from pettingllms.cli.new import HUBS, HubPackage, write_hub_package
from pettingllms.errors import InvalidArgument, UnknownEnvironment
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor


def packaged(hub, parent, env_id="plan_path_v0", **arguments):
    package = HubPackage(env_id, hub, arguments, "pettingllms==0.1.0", 3, 5)
    written = write_hub_package(package, parent)
    assert all(path.is_file() for path in written)
    return parent / package.name


@pytest.mark.parametrize("hub", HUBS)
def test_files_are_well_formed(hub, tmp_path):
    folder = packaged(hub, tmp_path, team="single", size=6)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        text = path.read_text()
        assert "@id" not in text
        assert "@name" not in text
        if path.suffix == ".py":
            compile(text, str(path), "exec")
        elif path.suffix == ".toml":
            tomllib.loads(text)
        elif path.suffix == ".jsonl":
            assert [json.loads(line)["seed"] for line in text.splitlines()] == [5, 6, 7]
        elif path.suffix == ".sh":
            assert os.access(path, os.X_OK)
            subprocess.run(["bash", "-n", path], check=True)


@pytest.mark.parametrize("hub", ["verifiers", "openenv"])
def test_packages_name_what_they_need(hub, tmp_path):
    project = tomllib.loads((packaged(hub, tmp_path) / "pyproject.toml").read_text())["project"]
    assert project["dependencies"][0] == "pettingllms==0.1.0"
    assert "maze" in project["description"]


def test_packages_of_different_arguments_have_different_names():
    several = [{}, {"team": "single"}, {"size": 6}, {"size": 7}]
    several += [{"message": "a" * length} for length in (200, 201)]
    names = {HubPackage("plan_path_v0", "openenv", one, "", 1, 0).name for one in several}
    assert len(names) == 6
    assert all(name.isidentifier() and len(name) < 100 for name in names)


@pytest.mark.parametrize(
    ("recorded", "wanted"),
    [
        (None, f"pettingllms=={pettingllms.__version__}"),
        ({"url": "file:///here", "dir_info": {"editable": True}}, "pettingllms @ file:///here"),
        (
            {"url": "https://host/x", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pettingllms @ git+https://host/x@abc",
        ),
    ],
)
def test_packages_need_pettingllms_as_it_is_installed(monkeypatch, tmp_path, recorded, wanted):
    text = None if recorded is None else json.dumps(recorded)
    monkeypatch.setattr(Distribution, "read_text", lambda self, name: text)
    assert run(["package", "queens_v0", "--for", "nemo-gym", "--in", str(tmp_path)]) == 0
    assert wanted in (tmp_path / "queens_v0" / "requirements.txt").read_text().splitlines()


@pytest.mark.parametrize("text", ["file:///x", "git+https://host/x@abc", "here"])
def test_a_path_or_an_address_becomes_a_requirement(monkeypatch, tmp_path, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert run(["package", "queens_v0", "--for", "openenv", "--requirement", text]) == 0
    (made,) = tmp_path.glob("queens_v0/pyproject.toml")
    needed = Requirement(tomllib.loads(made.read_text())["project"]["dependencies"][0])
    assert (needed.name, needed.extras) == ("pettingllms", set())
    assert needed.url == ((tmp_path / "here").as_uri() if text == "here" else text)


@pytest.mark.parametrize("text", ["pettingllms[code, math]==0.1.0", "pettingllms-envs==0.1.0"])
def test_a_requirement_is_kept_as_it_is_given(tmp_path, text):
    package = HubPackage("queens_v0", "openenv", {}, text, 1, 0)
    write_hub_package(package, tmp_path)
    project = tomllib.loads((tmp_path / package.name / "pyproject.toml").read_text())["project"]
    assert project["dependencies"][0] == text


def judged(task, answers):
    """Return the reward that the judge of a Harbor task writes for an answer file."""
    (task / "answers.json").write_text(answers)
    words = [sys.executable, task / "tests" / "judge.py", task / "answers.json", task / "logs"]
    subprocess.run(words, check=True)
    return (task / "logs" / "reward.txt").read_text()


def test_harbor_tasks_are_judged_by_their_level(tmp_path):
    folder = packaged("harbor", tmp_path, "blocksworld_v0", team="single", blocks=4)
    tasks = sorted(folder.iterdir())
    assert [task.name for task in tasks] == [
        f"blocksworld_v0_team_single_blocks_4_{seed}" for seed in (5, 6, 7)
    ]
    env = pettingllms.make("blocksworld_v0", checks=False, team="single", blocks=4)
    solutions = []
    for seed, task in zip((5, 6, 7), tasks, strict=True):
        env.reset(seed=seed)
        assert str(env.observe("planner_0")) in (task / "instruction.md").read_text()
        steps = play(env, scripted_actor("oracle", random.Random(0)))
        solutions.append(json.dumps([step["action"] for step in steps]))
        assert judged(task, solutions[-1]) == "1"
    for wrong in (
        solutions[1],
        "[]",
        "no JSON",
        "[" * 100_000,
        "[3]",
        json.dumps(["#### []"] * 100),
    ):
        assert judged(tasks[0], wrong) == "0"


def test_the_solution_of_a_harbor_task_solves_it(tmp_path):
    (task,) = list(packaged("harbor", tmp_path, "queens_v0", team="single").glob("*_5"))
    script = (task / "solution" / "solve.sh").read_text()
    answers = script.partition("<<'ANSWERS'\n")[2].rpartition("\nANSWERS")[0]
    assert judged(task, answers) == "1"
    assert "pip install" not in (task / "environment" / "Dockerfile").read_text()


def test_harbor_needs_one_agent(tmp_path):
    with pytest.raises(InvalidArgument, match="pass --env team=single"):
        packaged("harbor", tmp_path)


def test_nothing_is_overwritten_and_nothing_unknown_packaged(tmp_path):
    packaged("verifiers", tmp_path)
    with pytest.raises(InvalidArgument, match="a folder without plan_path_v0 in it"):
        packaged("verifiers", tmp_path)
    with pytest.raises(UnknownEnvironment):
        packaged("verifiers", tmp_path, "no_such_v0")
    with pytest.raises(InvalidArgument, match="invalid size"):
        packaged("openenv", tmp_path / "other", size=1)
    for source in ("game.py", "workflow:team.py:flow", "pettingllms_envs.queens:QueensEnv"):
        with pytest.raises(InvalidArgument, match="name that with --requirement"):
            packaged("openenv", tmp_path / "other", source)
    assert not (tmp_path / "other").exists()


def test_the_command(tmp_path, capsys):
    words = ("package", "queens_v0", "--for", "harbor", "--levels", "2", "--in", str(tmp_path))
    assert run([*words, "-e", "team=single", "-e", "size=6"]) == 0
    assert "harbor run" in capsys.readouterr().out
    assert len(list((tmp_path / "queens_v0_team_single_size_6").iterdir())) == 2
    assert run(words) == 2
    assert run(["package", "queens_v0", "--for", "nowhere"]) == 2
