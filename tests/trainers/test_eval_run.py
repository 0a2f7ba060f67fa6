"""`pettingllms eval RUN` of what `pettingllms-train` has trained, from both command lines."""

import json
import tomllib
from pathlib import Path

import pytest
from run_toys import announce

from pettingllms import plugins
from pettingllms.cli.app import run as pettingllms
from pettingllms_trainers.cli import main as train

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a short run of the example."""
    directory = tmp_path_factory.mktemp("trained") / "run"
    status = train(
        [
            *(str(ROOT / "examples/tiny_team.toml"), "--output-dir", str(directory)),
            *("--num-steps", "2", "--checkpoint.every", "1", "--evaluation.num-episodes", "8"),
            *("--logging.progress", "off", "--logging.no-tensorboard"),
        ]
    )
    assert status == 0
    return directory


@pytest.fixture
def announced(monkeypatch, tmp_path):
    """The trainer's plug-ins as its package announces them, installed or not."""
    project = tomllib.loads((ROOT / "trainers/pyproject.toml").read_text())["project"]
    announce(tmp_path / "site", project["name"], project["entry-points"])
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    plugins.installed.cache_clear()


def evaluated(tmp_path, *arguments):
    out = tmp_path / "evaluation"
    assert pettingllms(["eval", *map(str, arguments), "--out", str(out)]) == 0
    return json.loads((out / "report.json").read_text())


def test_greedy_play_of_the_trained_team_is_what_the_trainer_reports(trained, tmp_path):
    report = evaluated(tmp_path, trained, "-s", "temperature=0")
    own, variant = json.loads((trained / "eval.json").read_text()), report["variants"]["main"]
    greedy = own["after"]["variants"]["greedy"]
    assert variant["manifest"] == own["manifest"]
    assert variant["num_success"] == greedy["num_success"]
    assert variant["num_turns"]["value"] == pytest.approx(greedy["num_turns"])
    for role, figures in greedy["roles"].items():
        assert variant["roles"][role]["num_actions"] == figures["num_actions"]
        assert variant["roles"][role]["parse_errors"]["value"] == pytest.approx(
            figures["parse_errors"]
        )


@pytest.mark.usefixtures("announced")
def test_a_checkpoint_plays_without_an_export(trained, tmp_path, capsys):
    report = evaluated(tmp_path, trained, "--step", 1, "-n", 4, "-s", "temperature=0")
    variants = report["plan"]["variants"]["main"]
    assert variants["tool"] == f"run:{trained}?policy=tool&step=1&precision=float32"
    assert report["variants"]["main"]["num_episodes"] == 4
    capsys.readouterr()
    missing = f"run:{trained}?policy=tool&step=7"
    status = pettingllms(
        ["eval", str(trained), "-p", f"tool={missing}", "--out", str(tmp_path / "none")]
    )
    assert status == 1
    assert "has no checkpoint of train step 7" in " ".join(capsys.readouterr().err.split())


def test_a_recorded_rollout_and_the_run_before_and_after(trained, capsys):
    assert pettingllms(["replay", str(trained), "--step", "2", "--level", "1", "--quiet"]) == 0
    assert "replayed exactly" in capsys.readouterr().out
    assert pettingllms(["compare", f"{trained}@0", str(trained), "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["policies"][0]["planner"] == "planner of run, step 0"
    assert compared["settings"] == {}
