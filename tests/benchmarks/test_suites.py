"""Suites: trainers are compared at equal work, planted faults are found, intervals hold."""

import asyncio
import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "suites"))
blame = importlib.import_module("blame")
trainer_trl = importlib.import_module("trainer_trl")

PEER = """
import json, sys
settings = json.load(open(sys.argv[1]))
print(json.dumps({"num_parameters": settings["num_rows"]}), flush=True)
for number, line in enumerate(sys.stdin):
    if number == 2:
        sys.exit(3)
    print(json.dumps({"step": number}), flush=True)
"""


SHAPE = trainer_trl.Shape(4, 12, 8, 64)


def full_step(step):
    rows = SHAPE.num_rows
    return {
        "num_completions": rows,
        "num_with_advantage": rows,
        "num_prompt_tokens": rows * SHAPE.prompt_length,
        "num_sampled_tokens": rows * SHAPE.completion_length,
        "num_trained_tokens": rows * SHAPE.completion_length,
        "num_optimizer_steps": step + 1,
    }


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("num_sampled_tokens", -1),
        ("num_trained_tokens", -64),
        ("num_prompt_tokens", 1),
        ("num_completions", -8),
        ("num_optimizer_steps", 1),
        ("num_with_advantage", -16),
    ],
)
def test_a_step_of_other_work_ends_the_comparison(name, change):
    figures = full_step(0)
    figures[name] += change
    with pytest.raises(SystemExit, match="TRL"):
        trainer_trl.check("TRL", SHAPE, 0, figures)


def test_peer_answers_step_by_step_and_its_end_is_told(tmp_path, monkeypatch):
    peer = tmp_path / "peer.py"
    peer.write_text(PEER)
    monkeypatch.setattr(trainer_trl, "PEER", peer)
    settings = {"output_dir": str(tmp_path), "num_rows": 7}
    with trainer_trl.trl(sys.executable, settings) as theirs:
        assert theirs.about == {"num_parameters": 7}
        assert [theirs.step(), theirs.step()] == [{"step": 0}, {"step": 1}]
        with pytest.raises(SystemExit, match="exit code 3"):
            theirs.step()


def test_our_side_does_the_work_that_is_compared(tmp_path):
    size = trainer_trl.Size(64, 16, 16, 1)
    trainer_trl.save_model(size, tmp_path)
    with asyncio.Runner() as runner:
        ours = trainer_trl.Ours(size, SHAPE, tmp_path, 2048, runner)
        texts = ours.prompts(0)
        figures = ours.step(0)
    assert len(set(texts)) == SHAPE.num_prompts
    assert {len(text.split()) for text in texts} == {SHAPE.prompt_length}
    trainer_trl.check("ours", SHAPE, 0, figures)
    assert 0 < figures["rollout_cpu_s"] < figures["step_cpu_s"]


def test_ratios_are_formed_round_by_round():
    def step(rollout, update):
        total = rollout + update
        return {"rollout_cpu_s": rollout, "step_cpu_s": total, "step_wall_s": total}

    found = trainer_trl.summary(
        {"ours": [step(1, 1), step(2, 2)], "trl": [step(2, 4), step(6, 6)]}
    )["ratios"]
    assert found["rollout_speedup_over_trl"] == {"median": 2.5, "min": 2.0, "max": 3.0}
    assert found["update_speedup_over_trl"] == {"median": 3.5, "min": 3.0, "max": 4.0}
    assert found["step_speedup_over_trl"]["median"] == 3.0


@pytest.mark.nightly
@pytest.mark.parametrize("name", blame.CASES)
def test_planted_faults_are_found(name):
    found = blame.measured(blame.CASES[name], num_episodes=24)
    assert found["right"]["value"] >= 0.95
    assert found["single"]["value"] >= 0.88
    for held in found["hold"].values():
        assert held["jointly"]["high"] >= 0.95


def test_the_exact_chance_is_the_share_of_plays():
    """Two branches of every answer, summed, against the policy that draws them."""
    case = blame.CASES["Search"]
    env = blame.pettingllms.make(case.env_id, checks=False, **case.kwargs)
    env.reset(seed=1)
    policy = blame.Erring(case.fault, case.rates)
    exact = policy.chance(env, {})
    wins = 0
    for seed in range(200):
        twin = env.fork()
        for number in range(8):
            agent = twin.agent_selection
            if twin.terminations[agent] or twin.truncations[agent]:
                break
            prompt = blame.Prompt([], agent, 1000 * seed + number, twin)
            (answer,) = asyncio.run(policy.sample([prompt], 1, blame.Sampling()))
            twin.step(answer.completions[0].text)
        wins += twin.infos[agent]["success"]
    assert 0.3 < exact < 0.95
    assert abs(wins / 200 - exact) < 4 * (exact * (1 - exact) / 200) ** 0.5
