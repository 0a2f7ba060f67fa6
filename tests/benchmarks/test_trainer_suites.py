"""The suites of the trainer: equal work is enforced, phases add up, growth is fitted rightly."""

import asyncio
import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "suites"))
plan_by_hand = importlib.import_module("plan_by_hand")
trainer_pretrained = importlib.import_module("trainer_pretrained")
trainer_throughput = importlib.import_module("trainer_throughput")
trainer_phases = importlib.import_module("trainer_phases")
trainer_scaling = importlib.import_module("trainer_scaling")
trainer_trl = importlib.import_module("trainer_trl")
trainer_words = importlib.import_module("trainer_words")

PEER = """
import json, sys
settings = json.load(open(sys.argv[1]))
print(json.dumps({"num_parameters": settings["num_rows"]}), flush=True)
for number, line in enumerate(sys.stdin):
    if number == 2:
        sys.exit(3)
    print(json.dumps({"step": number}), flush=True)
"""


def test_clock_counts_a_phase_inside_of_another_one_only_once(monkeypatch):
    now = 0.0
    monkeypatch.setattr(trainer_phases.time, "process_time", lambda: now)
    clock = trainer_phases.Clock()
    now = 1.0
    with clock.phase("environment"):
        now = 3.0
        with clock.phase("encode"):
            now = 7.0
        now = 8.0
    now = 10.0
    seconds = clock.take()
    assert seconds == {"environment": 3.0, "encode": 4.0, "other": 3.0} | dict.fromkeys(
        ("generate", "update"), 0.0
    )
    assert not any(clock.take().values())


SHAPE = trainer_words.Shape(4, 12, 8, 64)


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


def test_steps_of_equal_work_are_accepted():
    trainer_trl.check("TRL", SHAPE, 4, full_step(4))


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
    size = trainer_words.Size(64, 16, 16, 1)
    trainer_words.save_model(size, tmp_path)
    with asyncio.Runner() as runner:
        ours = trainer_words.Ours(size, SHAPE, tmp_path, 2048, runner)
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
        SHAPE,
        {"ours": [step(1, 1), step(2, 2)], "trl": [step(2, 4), step(6, 6)]},
    )["ratios"]
    assert found["rollout_speedup_over_trl"] == {"median": 2.5, "min": 2.0, "max": 3.0}
    assert found["update_speedup_over_trl"] == {"median": 3.5, "min": 3.0, "max": 4.0}
    assert found["step_speedup_over_trl"]["median"] == 3.0


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_growth_is_fitted_over_tokens_for_every_seed(exponent):
    points = [
        (
            trainer_scaling.Point(value, "two_policies", {}),
            [
                [
                    trainer_phases.Step(
                        {name: value**exponent / 5 for name in trainer_phases.PHASES},
                        1,
                        1,
                        10 * value,
                        1,
                    )
                ]
                for _ in range(3)
            ],
        )
        for value in (2, 4, 8, 16)
    ]
    found = trainer_scaling.summary(points)
    assert found["growth_exponent"]["median"] == pytest.approx(exponent, abs=1e-3)
    shares = found["points"][0]["shares"]
    assert sum(share["median"] for share in shares.values()) == pytest.approx(1)
    assert (found["slope_s_per_unit"]["step"]["median"] == pytest.approx(1)) == (exponent == 1)


def test_every_recipe_of_a_sweep_is_a_valid_run():
    from pettingllms_trainers.config import Config
    from pettingllms_trainers.rollout.environments import make_environments

    tables = trainer_scaling.recipes()
    for points in trainer_scaling.SWEEPS.values():
        for point in points:
            table = trainer_scaling.changed(
                tables[point.recipe], {**point.changes, "evaluation.scripted": []}
            )
            make_environments(Config.model_validate(table))
            assert table["warm_start"]["num_steps"]


def test_changed_leaves_its_argument_alone():
    table = {"env": {"kwargs": {"size": 5}}, "seed": 0}
    found = trainer_scaling.changed(table, {"env.kwargs.size": 9, "rollout.num_levels": 2})
    assert found == {"env": {"kwargs": {"size": 9}}, "seed": 0, "rollout": {"num_levels": 2}}
    assert table == {"env": {"kwargs": {"size": 5}}, "seed": 0}


def test_steps_of_a_real_run_are_split_into_phases():
    changes = {
        "warm_start.num_steps": 0,
        "evaluation.scripted": [],
        "logging": {"progress": "off", "tensorboard": False},
        "rollout.num_levels": 2,
        "algorithm.num_candidates": 2,
    }
    (step,) = trainer_scaling.steps(trainer_scaling.recipes()["two_policies"], changes, 1)
    assert all(step.seconds[phase] > 0 for phase in ("environment", "encode", "generate", "other"))
    assert step.num_sampled_tokens >= step.num_trained_tokens
    assert step.num_sampled_tokens >= 2 * step.num_decisions > 0
    assert step.num_prompt_tokens > step.num_decisions


def test_a_pretrained_model_does_the_same_work_without_an_end(tmp_path):
    size = trainer_words.Size(64, 16, 16, 1)
    trainer_words.save_model(size, tmp_path / "source")
    trainer_pretrained.save_endless(tmp_path / "source", size, tmp_path / "model")
    with asyncio.Runner() as runner:
        ours = trainer_words.Ours(size, SHAPE, tmp_path / "model", 2048, runner)
        trainer_trl.check("ours", SHAPE, 0, ours.step(0))
    model = trainer_pretrained.endless(tmp_path / "source")
    trainer_pretrained.use_layouts(model)
    load = trainer_throughput.Workload(*size, 4, 2, 2, 2, (5, 5), 4, 0)
    found = trainer_throughput.measure(load, model, 1)
    assert found["sampled_tokens"] == 16
    assert found["ratios"].keys() >= {"update_speedup_over_plain"}


@pytest.mark.parametrize("case", plan_by_hand.CASES, ids=lambda case: case.name)
def test_the_plan_for_gpus_is_what_arithmetic_by_hand_gives(case):
    compared = [row for row in plan_by_hand.rows(case) if row["planned"] is not None]
    assert len(compared) == 8
    for row in compared:
        assert row["planned"] == pytest.approx(row["by_hand"], rel=0.01), row["quantity"]
