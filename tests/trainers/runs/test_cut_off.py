"""A policy that grows long is not dropped: it learns to be brief, and the run goes on."""

import tomllib
from pathlib import Path

import pytest
from run_toys import program

from pettingllms.files import read_lines
from pettingllms_trainers import train


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    place = tmp_path_factory.mktemp("cut off")
    (place / "chat_that_grows.py").write_text(program("growing_chat"))
    env = {"id": f"workflow:{place / 'chat_that_grows.py'}:workflow"}
    table = tomllib.loads(Path(__file__).with_name("cut_off.toml").read_text()) | {"env": env}
    run = train(table, trust=True, output_dir=str(place / "run"))
    return read_lines(Path(run.directory) / "metrics.jsonl")


def test_a_policy_that_outgrows_the_context_learns_to_be_brief(metrics):
    steps = [line for line in metrics if "rollout/num_trees" in line]
    assert {line["rollout/num_failed_trees"] for line in steps} == {0}
    assert {line["rollout/num_trees"] for line in steps} == {72}
    first, last = steps[0]["rollout/ends_limit"], steps[-1]["rollout/ends_limit"]
    assert steps[0]["rollout/end/context"] == first > 0.8, "it is cut off from the start"
    assert last < first / 2
    assert steps[-1]["role/talker/num_tokens"] < steps[0]["role/talker/num_tokens"] / 2


def test_held_out_episodes_that_are_cut_off_are_counted_and_not_solved(metrics):
    before = next(line for line in metrics if "eval/sampled/success" in line)
    assert before["eval/sampled/end/context"] > 0.5
    assert (before["eval/sampled/num_failed"], before["eval/sampled/success"]) == (0, 0)
