"""Packages for hubs are complete, well-formed and true. Hubs' own readers: tests of adapters."""

import json
import os
import random
import subprocess
import sys
import tomllib

import pytest

import pettingllms
from pettingllms.cli.app import run
from pettingllms.cli.package import HUBS, Parcel, write_parcel
from pettingllms.errors import InvalidArgument, UnknownEnvironment
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor


def packaged(hub, parent, env_id="plan_path_v0", **arguments):
    parcel = Parcel(env_id, hub, arguments, "pettingllms==0.1.0", 3, 5)
    written = write_parcel(parcel, parent)
    assert all(path.is_file() for path in written)
    return parent / parcel.name


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
    assert project["dependencies"][0] == f"pettingllms[{hub}]==0.1.0"
    assert "maze" in project["description"]


def judged(task, answers):
    """Return the reward that the judge of a Harbor task writes for an answer file."""
    (task / "answers.json").write_text(answers)
    words = [sys.executable, task / "tests" / "judge.py", task / "answers.json", task / "logs"]
    subprocess.run(words, check=True)
    return (task / "logs" / "reward.txt").read_text()


def test_harbor_tasks_are_judged_by_their_level(tmp_path):
    folder = packaged("harbor", tmp_path, "blocksworld_v0", team="single", blocks=4)
    tasks = sorted(folder.iterdir())
    assert [task.name for task in tasks] == [f"blocksworld_v0_team_{seed}" for seed in (5, 6, 7)]
    env = pettingllms.make("blocksworld_v0", checks=False, team="single", blocks=4)
    solutions = []
    for seed, task in zip((5, 6, 7), tasks, strict=True):
        env.reset(seed=seed)
        assert str(env.observe("planner_0")) in (task / "instruction.md").read_text()
        steps = play(env, scripted_actor("oracle", random.Random(0)))
        solutions.append(json.dumps([step["action"] for step in steps]))
        assert judged(task, solutions[-1]) == "1"
        assert "0" == judged(task, "[]") == judged(task, "no JSON") == judged(task, "[3]")
        assert judged(task, json.dumps(["#### []"] * 100)) == "0"
    assert judged(tasks[0], solutions[1]) == "0"


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
    with pytest.raises(InvalidArgument, match="a folder without plan_path_v0_team in it"):
        packaged("verifiers", tmp_path)
    with pytest.raises(UnknownEnvironment):
        packaged("verifiers", tmp_path, "no_such_v0")
    with pytest.raises(InvalidArgument, match="invalid size"):
        packaged("openenv", tmp_path / "other", size=1)
    assert not (tmp_path / "other").exists()


def test_the_command(tmp_path, capsys):
    words = ("package", "queens_v0", "--for", "harbor", "--levels", "2", "--in", str(tmp_path))
    assert run([*words, "-e", "team=single", "-e", "size=6"]) == 0
    assert "harbor run" in capsys.readouterr().out
    assert len(list((tmp_path / "queens_v0_team").iterdir())) == 2
    assert run(words) == 2
    assert run(["package", "queens_v0", "--for", "nowhere"]) == 2
