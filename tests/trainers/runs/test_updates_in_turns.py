"""Runs in which policies are updated in turns: what is frozen stays as it is, bit for bit."""

import itertools
import json
import tomllib

import pytest
import tomli_w
import torch
from run_toys import SOLO

from pettingllms import role_of
from pettingllms.files import read_lines
from pettingllms_trainers.backends.hf.weights import read_shares
from pettingllms_trainers.cli import main

TURNS = """
[updates]
repeat = true
[[updates.phases]]
policies = ["p"]
num_steps = 1
[[updates.phases]]
policies = ["t"]
num_steps = 2
"""
FLAGS = ["--checkpoint.keep=9", "--warm-start.num-steps=20"]


def train(small_run_file, directory, more, *flags, num_steps=4):
    path = directory / "run.toml"
    path.write_text(small_run_file(num_steps).read_text() + more)
    arguments = [str(path), "--output-dir", str(directory / "run"), *FLAGS, *flags]
    assert main(arguments) == 0
    return directory / "run", arguments


def states(run, policy):
    folders = sorted((run / "checkpoints").glob("step-*"))
    manifests = [json.loads((folder / "checkpoint.json").read_text()) for folder in folders]
    return [read_shares(f / m["policies"][policy]) for f, m in zip(folders, manifests, strict=True)]


def is_equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return one == other


@pytest.fixture(scope="module", params=["weights", pytest.param("LoRA", marks=pytest.mark.nightly)])
def turns(request, small_run_file, tmp_path_factory):
    lora = [f"--policies.{name}.lora.rank=4" for name in "tp"] if request.param == "LoRA" else []
    directory = tmp_path_factory.mktemp(request.param)
    return train(small_run_file, directory, TURNS, *lora)


def test_what_is_frozen_is_bit_identical(turns):
    """Weights or adapter, optimizer state, KL reference and place in the schedule."""
    run, _ = turns
    schedule = {"p": [True, False, False, True], "t": [False, True, True, False]}
    for policy, is_updated in schedule.items():
        saved = states(run, policy)
        assert len(saved) == 5
        same = [is_equal(before, after) for before, after in itertools.pairwise(saved)]
        assert same == [not flag for flag in is_updated]
        assert [state["num_updates"] for state in saved] == (
            [0, 1, 1, 1, 2] if policy == "p" else [0, 0, 1, 2, 2]
        )


def test_metrics_are_of_those_that_are_updated(turns):
    lines = read_lines(turns[0] / "metrics.jsonl")[1:]
    assert [line["update/phase"] for line in lines] == [1, 2, 2, 1]
    assert ["update/p/num_groups" in line for line in lines] == [True, False, False, True]
    assert ["update/t/num_groups" in line for line in lines] == [False, True, True, False]
    assert ["role/tool/num_decisions" in line for line in lines] == [False, True, True, False]


def test_a_frozen_role_has_one_candidate_and_still_acts(turns):
    trees = [t for t in read_lines(turns[0] / "rollouts.jsonl") if t["set"] == "training"]
    assert [tree["step"] for tree in trees] == [1, 2, 3, 4]
    for tree in trees:
        trained = "planner" if tree["step"] in (1, 4) else "tool"
        for decision in tree["decisions"]:
            num, role = len(decision["candidates"]), role_of(decision["agent"])
            assert num == (4 if role == trained else 1), role
            assert decision["chosen"] is not None


def test_a_resumed_run_is_bit_for_bit_the_same(turns, resumes):
    """Also from the middle of the second phase."""
    assert len(resumes(*turns, 2)["weights"]) >= 2


def test_roles_of_a_shared_policy_take_turns(small_run_file, tmp_path):
    more = "[[updates.phases]]\nroles = ['planner']\nnum_steps = 1\n[[updates.phases]]\n"
    text = small_run_file(2).read_text().replace('tool = "t"', 'tool = "p"')
    start, end = text.index("[policies.t]"), text.index("[policies.p]")
    (tmp_path / "run.toml").write_text(text[:start] + text[end:] + more)
    flags = ["--output-dir", str(tmp_path / "run"), *FLAGS]
    assert main([str(tmp_path / "run.toml"), *flags]) == 0
    first, second = read_lines(tmp_path / "run" / "metrics.jsonl")[1:]
    assert "role/tool/num_decisions" not in first
    planner = first["role/planner/decisions_used"] * first["role/planner/num_decisions"]
    assert first["update/p/num_groups"] == pytest.approx(planner)
    both = sum(
        second[f"role/{role}/decisions_used"] * second[f"role/{role}/num_decisions"]
        for role in ("tool", "planner")
    )
    assert second["update/p/num_groups"] == pytest.approx(both)


def test_an_environment_without_trained_roles_is_not_played(small_run_file, tmp_path):
    table = tomllib.loads(small_run_file(2).read_text())
    table["env"] = [table["env"], SOLO]
    table["updates"] = {"phases": [{"policies": ["t"], "num_steps": 1}, {}]}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(table))
    flags = ["--output-dir", str(tmp_path / "run"), *FLAGS, "--rollout.num-levels=4"]
    assert main([str(tmp_path / "run.toml"), *flags]) == 0
    first, second = read_lines(tmp_path / "run" / "metrics.jsonl")[1:]
    assert first["env/plan_path/num_trees"] == 4
    assert "env/solo/num_trees" not in first
    assert second["env/solo/num_trees"] == 2
