"""`new`: the package that it writes is installed elsewhere and works unchanged."""

import importlib
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from pettingllms.testing import check_documentation
from pettingllms.testing.report import ConformanceWarning


def run(*arguments, cwd, **changes):
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, arguments)],
        cwd=cwd,
        env={**variables, **changes},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def fresh_python(tmp_path):
    """A new virtual environment that sees the packages of this one, and only those."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    site = Path(paths["purelib"])
    here = sysconfig.get_paths()["purelib"]
    (site / "base.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return Path(paths["scripts"]) / Path(sys.executable).name


@pytest.mark.slow
@pytest.mark.nightly
def test_a_new_package_works_in_a_fresh_environment(call, fresh_python, tmp_path):
    done = call("new", "hidden_number")
    assert done.returncode == 0
    assert "hidden_number/hidden_number.py" in done.stdout.replace(os.sep, "/")
    for shown in ("guide_0 reads", "reader_0 answers, reward", "the state after one turn"):
        assert shown in done.stdout
    package = tmp_path / "hidden_number"
    assert not list(package.rglob("__pycache__")), "a look at the game leaves nothing behind"
    written = [path.read_text() for path in package.rglob("*") if path.is_file()]
    assert not any("my_game" in text or "MyGame" in text for text in written)

    pip = (fresh_python, "-m", "pip", "--disable-pip-version-check")
    offline = ("-q", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "install", *offline, package, cwd=tmp_path)
    assert "passed" in run(fresh_python, "-m", "pytest", "-q", cwd=package)

    code = """
import pettingllms, hidden_number
from pettingllms.testing import check_env
env = pettingllms.make("hidden_number_v0", num_digits=6)
env.reset(seed=1)
check_env("hidden_number_v0", num_digits=6)
print(hidden_number.__file__, pettingllms.spec("hidden_number_v0").package)
"""
    where = run(fresh_python, "-W", "ignore", "-c", code, cwd=tmp_path)
    assert str(tmp_path / "venv") in where
    assert "hidden-number" in where

    command = (fresh_python, "-m", "pettingllms.cli")
    report = json.loads(
        run(*command, "eval", "hidden_number_v0", "-p", "oracle", "--json", cwd=tmp_path)
    )
    assert report["plan"]["env_kwargs"] == {"split": "test"}
    assert report["variants"]["main"]["success"]["value"] == 1
    assert "hidden_number_v0" in run(*command, "list", cwd=tmp_path)

    pytest.importorskip("pettingllms_trainers", reason="the trainer is not installed")
    trainer = (fresh_python, "-m", "pettingllms_trainers.cli", "train.toml")
    run(*trainer, "--num-steps", "2", cwd=package, OMP_NUM_THREADS="1")
    trained = package / "runs" / "hidden_number"
    metrics = (trained / "metrics.jsonl").read_text().splitlines()
    assert json.loads(metrics[-1])["step"] == 2
    again = run(*command, "eval", trained, "-n", "4", "--json", cwd=package)
    assert json.loads(again)["plan"]["env_kwargs"]["prompts"]["guide"]["user"] == "{place}"


def test_the_new_package_is_tidy(call, tmp_path):
    call("new", "a_longer_name_of_a_game_than_most")
    package = tmp_path / "a_longer_name_of_a_game_than_most"
    (game,) = package.glob("a_*.py")
    assert len(game.read_text().splitlines()) <= 200
    ruff = (sys.executable, "-m", "ruff")
    rules = "E,F,I,B,UP,PT,SIM,RUF,D"
    options = ("--isolated", "--target-version", "py311", "--config", "line-length=100")
    run(*ruff, "format", "--check", *options, ".", cwd=package)
    ignored = "D203,D212,D213,D105,D107,D102,D103,D106,D413,D401,D415,D400,D404,D205,D416,D407"
    run(*ruff, "check", *options, "--select", rules, "--ignore", ignored, ".", cwd=package)


def test_prose_of_the_template_is_noticed(call, tmp_path, monkeypatch):
    call("new", "a_number_game")
    monkeypatch.syspath_prepend(str(tmp_path / "a_number_game"))
    env_class = importlib.import_module("a_number_game").ANumberGameEnv
    with pytest.warns(ConformanceWarning, match=r"template's text under Task, .*, Source; say"):
        check_documentation(env_class())
    own = env_class.__doc__.replace("Different digits are", "Treasures are")
    monkeypatch.setattr(env_class, "__doc__", own.replace("Our own", "A fair"))
    with pytest.warns(ConformanceWarning, match="under Agents and roles, Observation"):
        check_documentation(env_class())


def test_nothing_is_overwritten(call, tmp_path):
    (tmp_path / "a_game").mkdir()
    done = call("new", "a_game")
    assert done.returncode == 2
    assert "exists" in done.stderr
    assert list((tmp_path / "a_game").iterdir()) == []
