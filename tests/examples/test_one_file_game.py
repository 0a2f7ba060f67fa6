"""A game in one file goes the whole way by its path, and its runs are read from anywhere."""

import json
import shutil
import sys
from pathlib import Path

from pettingllms.cli.app import run
from pettingllms_trainers.cli import main

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SMALL = ["--num-steps=1", "--warm-start.num-steps=2", "--rollout.num-levels=2"]
SMALL += ["--evaluation.num-episodes=4", "--logging.progress=off", "--logging.tensorboard=false"]


def test_it_is_checked_played_trained_replayed_and_viewed(tmp_path, monkeypatch, capsys):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("one_file_game.py", "one_file_game.toml"):
        shutil.copy(FOLDER / name, home)
    monkeypatch.chdir(home)
    assert run(["check", "one_file_game.py", "--env", "length=4"]) == 0
    assert run(["eval", "one_file_game:LargestDigit", "-p", "oracle", "-n", "3", "--out", "e"]) == 0
    assert main(["one_file_game.toml", "--trust", "--output-dir", "r", *SMALL]) == 0
    assert main(["one_file_game.toml", "--trust", "--output-dir", "r", "--resume", *SMALL]) == 0
    monkeypatch.chdir(elsewhere)
    played, trained = home / "e", home / "r"
    assert run(["eval", "--run", str(trained), "--trust", "-n", "2", "--out", "again"]) == 0
    for recorded in (played, trained):
        assert run(["replay", str(recorded), "--quiet", "--trust"]) == 0
        assert run(["view", str(recorded)]) == 0
    plan = json.loads((elsewhere / "again" / "run.json").read_text())["plan"]
    assert plan["env_id"] == str(home / "one_file_game.py")
    capsys.readouterr()
    (home / "one_file_game.py").rename(home / "renamed.py")
    monkeypatch.delitem(sys.modules, "one_file_game")
    assert run(["eval", "--run", str(trained), "--trust", "-n", "2", "--out", "third"]) == 2
    assert f"there is no file {home / 'one_file_game.py'}" in capsys.readouterr().err
