"""The GPU campaign runs at toy size on a CPU: in parts, after failures, to the end."""

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
gpu_campaign = importlib.import_module("gpu_campaign")
Job, Results = gpu_campaign.Job, gpu_campaign.Results
CONFIGS = Path(gpu_campaign.__file__).parent / "configs"


@pytest.mark.slow
@pytest.mark.nightly
def test_all_of_it_runs_at_toy_size(tmp_path, capsys):
    command = ["--output", str(tmp_path), "--size", "toy", "--minutes", "30"]
    assert gpu_campaign.main(command) == 0, capsys.readouterr().out
    found = json.loads((tmp_path / "gpu_campaign.json").read_text())
    jobs = found["jobs"]
    assert {name: job["status"] for name, job in jobs.items()} == dict.fromkeys(jobs, "done")
    assert {name: job["num_attempts"] for name, job in jobs.items()} == dict.fromkeys(jobs, 1)
    assert [*jobs] == [job.name for job in gpu_campaign.jobs_of("toy")]
    assert jobs["self_checks"]["bfloat16"] == "equal"
    assert max(jobs["packed_attention"]["toy"]["largest_gaps"]) < 1e-5
    assert jobs["generate toy"]["num_completion_tokens"] == 2 * 2 * 6
    assert jobs["update toy full"]["num_tokens"] == 2 * (12 + 2 * 6)
    assert jobs["update toy full"]["planned_bytes"] > 1 << 30
    evaluations = jobs["plan_path to the end"]["evaluations"]
    assert [line["step"] for line in evaluations] == [0, 1, 2]
    assert all(0 <= line["greedy"]["success"] <= 1 for line in evaluations)
    # nothing is done twice
    before = (tmp_path / "gpu_campaign.json").read_text()
    assert gpu_campaign.main(command) == 0
    assert (tmp_path / "gpu_campaign.json").read_text() == before
    with pytest.raises(SystemExit, match="has results of size toy"):
        Results(tmp_path / "gpu_campaign.json", "full")


def test_what_fails_is_tried_once_more_and_the_rest_is_measured(tmp_path):
    path, calls = tmp_path / "results.json", []

    def run(job, seconds):
        calls.append(job.name)
        if job.name == "broken" or (job.name == "shaky" and calls.count("shaky") == 1):
            raise RuntimeError("no kernel")
        return {"speed": 1, "is_complete": calls.count("run") > 1}

    jobs = [Job("broken", 0), Job("shaky", 0), Job("long", 100), Job("run", 0, fills_part=True)]
    part = lambda seconds: gpu_campaign.do_part(  # noqa: E731
        Results(path, "toy"), jobs, time.monotonic() + seconds, run
    )
    assert part(90) == 3, "there is too little time for the third"
    assert calls == ["broken", "broken", "shaky", "shaky"]
    assert part(1000) == 3, "a run that is not complete ends a part"
    assert part(1000) == 1, "all is done, and one has failed"
    assert calls[4:] == ["long", "run", "run"]
    found = Results(path, "toy")
    assert found.failed == ["broken"]
    assert found.jobs["broken"]["error"] == "RuntimeError: no kernel"
    assert found.jobs["shaky"]["speed"] == found.jobs["run"]["num_attempts"] == 1
    # What was begun when the campaign was ended is an attempt.
    found.put("long", {"status": "begun", "num_attempts": 1})
    assert Results(path, "toy").is_left("long")
    found.put("long", {"status": "begun", "num_attempts": 2})
    assert Results(path, "toy").failed == ["broken", "long"]


def test_a_measurement_has_a_process_whose_error_is_told(tmp_path, monkeypatch):
    run = gpu_campaign.in_own_process("toy", tmp_path, "none")
    with pytest.raises(subprocess.TimeoutExpired):
        run(Job("machine", 0.01), 1)
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RuntimeError, match="exit code 1"):
        run(Job("machine", 20), 20)


def test_the_run_of_the_full_size_is_planned():
    """It fits a lease of 15 minutes, and its model has between 25 and 100 million weights."""
    from pettingllms_trainers.backends.hf.shapes import shape_of
    from pettingllms_trainers.config.loading import load_config

    *jobs, run = gpu_campaign.jobs_of("full")
    first = [job for job in jobs if "-0.6B" in job.name or "/" not in job.name]
    assert jobs[: len(first)] == first
    assert [job.name for job in jobs if job.fills_part] == []
    assert run.fills_part
    assert sum(job.expected_s for job in first) < 9.5 * 60
    assert sum(job.expected_s for job in jobs) <= 15 * 60
    path = CONFIGS / "gpu_plan_path_full.toml"
    config = load_config(path)
    assert 25e6 < shape_of("team", config.policies["team"]).num_parameters < 100e6
    assert config.env[0].kwargs["size"] == 10


def test_plans_hold_what_an_update_took_on_a_gpu():
    """Time is in the plan's range, and memory fits into what is planned without much to spare."""
    from pettingllms_trainers.backends.hf.shapes import shape_of
    from pettingllms_trainers.config import PolicyConfig
    from pettingllms_trainers.fleet.speeds import FAST, GPUS, SLOW, learning_of

    gpu_jobs = importlib.import_module("gpu_jobs")
    path = Path(gpu_campaign.__file__).parent / "results" / "gpu_campaign.json"
    jobs = json.loads(path.read_text(encoding="utf-8"))["jobs"]
    found = [(name.split(), job) for name, job in jobs.items() if "peak_bytes" in job]
    updates = [(model, kind, job) for (what, model, *kind), job in found if what == "update"]
    assert len(updates) >= 3
    for model, (kind,), job in updates:
        lora = {"rank": gpu_jobs.LORA.rank if kind == "lora" else 0}
        shape = shape_of("p", PolicyConfig(model=model, lora=lora))
        slow, fast = (
            learning_of(
                shape, GPUS["h100"], reached, is_recomputed=True, is_checkpointed=False
            ).token_s
            for reached in (SLOW, FAST)
        )
        assert fast < 1 / job["tokens_per_s"] < slow
        planned = gpu_jobs.planned_bytes(gpu_jobs.GpuWorkload.of("full"), model, kind)
        assert job["peak_bytes"] < planned < 1.2 * job["peak_bytes"]
