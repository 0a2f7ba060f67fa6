"""The GPU campaign runs at toy size on a CPU: in parts, after failures, to the end."""

import importlib
import json
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
gpu_campaign = importlib.import_module("gpu_campaign")
Measurement, Results = gpu_campaign.Measurement, gpu_campaign.Results


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.nightly
def test_all_of_it_runs_at_toy_size(tmp_path, capsys):
    assert gpu_campaign.main(["--output", str(tmp_path), "--size", "toy"]) == 0
    found = json.loads((tmp_path / "gpu_campaign.json").read_text())
    jobs = found["jobs"]
    assert {name: job["status"] for name, job in jobs.items()} == dict.fromkeys(jobs, "done")
    assert set(jobs) == {
        "matmul", "self_checks", "packed_attention", "chunked_logits", "generate toy",
        "update toy lora", "update toy full", "learn_plan_path",
    }  # fmt: skip
    assert jobs["self_checks"]["bfloat16"] == "equal"
    assert jobs["chunked_logits"]["largest_gap"] < 1e-5
    assert max(jobs["packed_attention"]["toy"]["largest_gaps"]) < 1e-5
    assert jobs["generate toy"]["num_completion_tokens"] == 2 * 2 * 6
    assert jobs["update toy full"]["num_tokens"] == 2 * (12 + 2 * 6)
    assert jobs["update toy full"]["planned_bytes"] > 1 << 30
    evaluations = jobs["learn_plan_path"]["evaluations"]
    assert [line["step"] for line in evaluations] == [0, 1, 2]
    assert all(0 <= line["greedy"]["success"] <= 1 for line in evaluations)
    assert "all is done" in capsys.readouterr().out
    # nothing is done twice
    before = (tmp_path / "gpu_campaign.json").read_text()
    assert gpu_campaign.main(["--output", str(tmp_path), "--size", "toy"]) == 0
    assert (tmp_path / "gpu_campaign.json").read_text() == before
    with pytest.raises(SystemExit, match="has results of size toy"):
        Results(tmp_path / "gpu_campaign.json", "full")


def test_parts_do_what_is_left(tmp_path):
    calls = []

    def work(name, **result):
        return lambda: calls.append(name) or result

    def fail():
        raise RuntimeError("no kernel")

    path = tmp_path / "results.json"
    jobs = [
        Measurement("first", work("first", speed=1), 0),
        Measurement("broken", fail, 0),
        Measurement("run", work("run", status="left"), 0),
        Measurement("long", work("long"), 100),
    ]
    assert gpu_campaign.do_part(Results(path, "toy"), jobs, time.monotonic() + 90) == 3
    assert calls == ["first", "run"], "a run that is not complete ends a part"
    jobs[2] = Measurement("run", work("run"), 0)
    assert gpu_campaign.do_part(Results(path, "toy"), jobs, time.monotonic() + 90) == 3
    assert calls == ["first", "run", "run"], "the last needs more time than is left"
    results = Results(path, "toy")
    assert gpu_campaign.do_part(results, jobs, time.monotonic() + 10_000) == 0
    assert results.jobs["first"]["speed"] == 1
    assert results.jobs["broken"]["error"] == "RuntimeError: no kernel"
    assert calls[-1] == "long"


def test_what_ended_the_process_is_not_tried_again(tmp_path):
    path = tmp_path / "results.json"
    results = Results(path, "toy")
    results.put("crash", {"status": "begun"})
    assert Results(path, "toy").jobs["crash"]["error"] == "it ended the process"


def test_the_full_size_needs_a_gpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu_campaign.main(["--output", str(tmp_path)])
    assert "--size toy runs on a CPU" in capsys.readouterr().err


def test_the_run_of_the_full_size_is_planned():
    """Its configuration is right, and its model has between 25 and 100 million weights."""
    from pettingllms_trainers.backends.hf.shapes import shape_of
    from pettingllms_trainers.config.loading import load_config

    path = gpu_campaign.REPOSITORY / "benchmarks" / "configs" / "gpu_plan_path_full.toml"
    config = load_config(path)
    assert 25e6 < shape_of("team", config.policies["team"]).num_parameters < 100e6
    assert config.env[0].kwargs["size"] == 10
