"""The scripts in `examples`: they run, one learns, and one goes the whole way by its path."""

import argparse
import importlib.util
import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from pettingllms.cli.app import run
from pettingllms_trainers.cli import main
from pettingllms_trainers.own_loop import OpenPolicy

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXPECTED = {
    "evaluate_scripted_policy.py": "paired difference: -",
    "fork_and_branch.py": "continues with",
    "gymnasium_single_role.py": "solved: True",
    "record_and_replay.py": "replayed to the same state: True",
    "train_tiny_team.py": "the run has written",
}
"""Script -> what it must say."""


def test_every_script_is_tested():
    others = {"at_grpo.py", "one_file_game.py"}
    assert {path.name for path in FOLDER.glob("*.py")} - others == set(EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(EXPECTED))
def test_the_script_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = 0
    try:
        runpy.run_path(str(FOLDER / script), run_name="__main__")
    except SystemExit as end:
        code = end.code
    assert code == 0
    assert EXPECTED[script] in capsys.readouterr().out
    assert not list(tmp_path.iterdir()), "the script left something in the folder it was run in"


AT_GRPO = FOLDER / "at_grpo.py"
SHORT = {"num_steps": 2, "num_warm_steps": 1, "num_levels": 3, "num_held_out": 2}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("at_grpo", AT_GRPO)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def options(script, out, **others):
    defaults = {name.replace("-", "_"): number for name, number in script.OPTIONS.items()}
    return argparse.Namespace(out=str(out), **(defaults | others))


def test_it_is_read_in_one_go():
    assert len(AT_GRPO.read_text(encoding="utf-8").splitlines()) <= 150


def test_both_roles_take_steps_and_are_saved(script, tmp_path, monkeypatch, capsys):
    norms, step = [], OpenPolicy.optim_step
    monkeypatch.setattr(
        OpenPolicy, "optim_step", lambda self, rate: norms.append((self.name, step(self, rate)))
    )
    script.main(options(script, tmp_path, **SHORT))
    learnt = norms[2:]  # the others are of the warm start
    assert {name for name, _ in learnt} == {"tool", "planner"}
    assert all(norm > 0 for _, norm in learnt)
    assert capsys.readouterr().out.count("of the training levels solved") == 2
    assert all((tmp_path / role / "model.safetensors").is_file() for role in ("tool", "planner"))


@pytest.mark.nightly
def test_it_learns_plan_path(script, tmp_path, capsys):
    script.main(options(script, tmp_path))
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("held-out")]
    before, after = (float(line.rpartition(" ")[2]) for line in told)
    assert before < 0.4
    assert after > 0.7


SMALL = ["--num-steps=1", "--warm-start.num-steps=2", "--rollout.num-levels=2"]
SMALL += ["--evaluation.num-episodes=4", "--logging.progress=off", "--logging.tensorboard=false"]


def test_it_is_checked_played_trained_replayed_and_viewed(tmp_path, monkeypatch, capsys):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.mkdir()
    for name in ("one_file_game.py", "one_file_game.toml"):
        shutil.copy(FOLDER / name, home)
    monkeypatch.chdir(home)
    assert run(["check", "one_file_game.py", "--env", "length=4"]) == 0
    assert run(["eval", "one_file_game:LargestDigit", "-p", "oracle", "-n", "3", "--out", "e"]) == 0
    assert main(["one_file_game.toml", "--trust", "--output-dir", "r", *SMALL]) == 0
    assert main(["one_file_game.toml", "--trust", "--output-dir", "r", "--resume", *SMALL]) == 0
    monkeypatch.chdir(elsewhere)
    played, trained = home / "e", home / "r"
    assert run(["eval", str(trained), "--trust", "-n", "2", "--out", "again"]) == 0
    for recorded in (played, trained):
        assert run(["replay", str(recorded), "--quiet", "--trust"]) == 0
        assert run(["view", str(recorded)]) == 0
    plan = json.loads((elsewhere / "again" / "run.json").read_text())["plan"]
    assert plan["env_id"] == str(home / "one_file_game.py")
    capsys.readouterr()
    (home / "one_file_game.py").rename(home / "renamed.py")
    monkeypatch.delitem(sys.modules, "one_file_game")
    assert run(["eval", str(trained), "--trust", "-n", "2", "--out", "third"]) == 2
    assert f"there is no file {home / 'one_file_game.py'}" in capsys.readouterr().err
