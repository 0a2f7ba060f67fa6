"""`pettingllms-train plan`, through the command line."""

import json

import pytest

from pettingllms_trainers.cli import main

PAPER = [
    f"recipe:paper/{name}"
    for name in ("paper", "tasks/plan_path", "models/qwen3_8b", "training/lora")
]


def test_splits_algorithms_and_costs_are_planned(capsys):
    flags = ["--gpus", "4", "--usd-per-hour", "2", "--json"]
    few = ["--num-steps=10", "--rollout.num-levels=4", "--engine.precision=auto"]
    assert main(["plan", *flags, *PAPER, *few]) == 0
    found = json.loads(capsys.readouterr().out)
    fleets = [fleet for fleet in found["fleets"] if fleet["num_gpus"] == 4]
    times = [fleet["step_s"] for fleet in fleets]
    assert times == sorted(times)
    assert fleets[0]["usd"] == pytest.approx(4 * 2 * times[0] * 10 / 3600)
    assert found["step_s_range"][0] < times[0] < found["step_s_range"][1]
    assert {"at_grpo", "reinforce", "auto", "vine"} <= set(found["algorithms"])
    assert all(step["waits_for"] for step in (*fleets, *found["algorithms"].values()))


def test_a_recorded_run_says_how_long_answers_are(small_run_file, tmp_path, capsys):
    out = tmp_path / "run"
    recorded = str(small_run_file())
    assert main([recorded, "--output-dir", str(out), "--num-steps=1"]) == 0
    capsys.readouterr()
    assert main(["plan", recorded, "--from", str(out), "--gpus", "1"]) == 0
    text = capsys.readouterr().out
    assert f"train step 1 of {out}" in " ".join(text.split())
    assert "assumed" not in text


@pytest.mark.parametrize("policy", [(), ("--policies.t.frozen=true",)])
def test_this_machine_is_measured_first(small_run_file, capsys, policy):
    flags = ["--gpu", "here", "--json", "--engine.precision=auto", *policy]
    assert main(["plan", str(small_run_file()), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    (here,) = found["fleets"]
    assert here["num_gpus"] == 1
    assert here["usd"] == 0
    low, high = found["step_s_range"]
    assert low / 10 < here["step_s"] < 10 * high, "fitted to these steps"
    assert found["algorithms"]["vine"]["step_s"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gpu", "h1000"], "--gpu is 'h1000'; known are a100, b200, h100"),
        (["--gpus", "0"], "--gpus is 0; at least 1 is needed"),
        (["--gpus", "1", "--lora.rank=0"], "deepspeed.stage = 3"),
    ],
)
def test_mistakes_are_named(flags, message, capsys):
    flags = [flag.replace("--lora", "--every-policy.lora") for flag in flags]
    split = next((n for n, flag in enumerate(flags) if flag.startswith("--every")), len(flags))
    assert main(["plan", *flags[:split], *PAPER, *flags[split:]]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_run_without_recorded_rollouts_is_refused(tmp_path, capsys):
    (tmp_path / "rollouts.jsonl").write_text("")
    assert main(["plan", *PAPER, "--from", str(tmp_path)]) == 2
    assert "no recorded rollouts" in capsys.readouterr().err
