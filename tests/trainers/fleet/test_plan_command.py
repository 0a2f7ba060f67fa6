"""`pettingllms-train plan`, through the command line."""

import json

import pytest

from pettingllms_trainers.cli import main

PAPER = [
    f"recipe:paper/{name}"
    for name in ("paper", "tasks/plan_path", "models/qwen3_8b", "training/lora")
]


def test_splits_and_costs_are_planned(capsys):
    flags = ["--gpus", "4", "--usd-per-hour", "2", "--json"]
    few = ["--num-steps=10", "--rollout.num-levels=4", "--engine.precision=auto"]
    assert main(["plan", *flags, *PAPER, *few]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {fleet["num_gpus"] for fleet in found["found"]} == {4, 2, 1}
    fleets = [fleet for fleet in found["found"] if fleet["num_gpus"] == 4]
    times = [fleet["step_s"] for fleet in fleets]
    assert times == sorted(times)
    assert fleets[0]["usd"] == pytest.approx(4 * 2 * times[0] * 10 / 3600)
    assert found["range_s"][0] < times[0] < found["range_s"][1]
    assert all(step["waits_for"] for step in fleets)


def test_a_recorded_run_says_how_long_answers_are(small_run_file, tmp_path, capsys):
    out = tmp_path / "run"
    recorded = str(small_run_file())
    assert main([recorded, "--output-dir", str(out), "--num-steps=1"]) == 0
    capsys.readouterr()
    assert main(["plan", recorded, "--from", str(out), "--gpus", "1"]) == 0
    text = capsys.readouterr().out
    assert f"train step 1 of {out}" in " ".join(text.split())
    assert "assumed" not in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gpu", "h1000"], "--gpu is 'h1000'; known are a100, b200, h100"),
        (["--gpus", "0"], "--gpus is 0; at least 1 is needed"),
        (["--gpus", "1", "--lora.rank=0"], "deepspeed.stage = 3"),
        (
            ["--gpus", "1", "--engine.vllm.tensor-parallel-size=2"],
            "no fleet of up to 1 h100 holds this run: 1 base model with 2 GPUs for each engine.",
        ),
    ],
)
def test_mistakes_are_named(flags, message, capsys):
    flags = [flag.replace("--lora", "--every-policy.lora") for flag in flags]
    split = next((n for n, flag in enumerate(flags) if flag.startswith("--e")), len(flags))
    assert main(["plan", *flags[:split], *PAPER, *flags[split:]]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_run_without_recorded_rollouts_is_refused(tmp_path, capsys):
    (tmp_path / "rollouts.jsonl").write_text("")
    assert main(["plan", *PAPER, "--from", str(tmp_path)]) == 2
    assert "no recorded rollouts" in capsys.readouterr().err
