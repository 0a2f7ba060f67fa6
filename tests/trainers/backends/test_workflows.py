"""Workflows on vLLM and Ray."""

import os
import sys
from pathlib import Path

import pytest
from backend_toys import OLD_NAMES, VLLM_FLAGS, figures

from pettingllms_trainers.cli import main

pytestmark = OLD_NAMES
TOYS = Path(__file__).parents[1] / "toys"
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
