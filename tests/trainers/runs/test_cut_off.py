"""A policy that grows long is not dropped: it learns to be brief, and the run goes on."""

import tomllib
from pathlib import Path

import pytest

from pettingllms.files import read_lines
from pettingllms_trainers import train

RUN = """
num_steps = 9
num_threads = 1
every_policy = { model = "tiny", vocabulary = "0123456789 ", hidden_size = 16, num_layers = 1, \
    num_heads = 2, max_length = 40 }
roles = { talker = "t" }
algorithm = { name = "grpo", num_candidates = 6 }
rollout = { num_levels = 12, max_completion_tokens = 14 }
optimizer = { learning_rate = 5e-3, num_epochs = 2, completions_per_minibatch = 48 }
evaluation = { num_episodes = 12 }
logging = { progress = "off", tensorboard = false }
"""
CHAT = """
from pettingllms.workflows import Workflow

def run(task, client):
    chat, total = [], 0
    for _ in range(4):
        chat.append({"role": "user", "content": task})
        said = client.openai().chat.completions.create(model="talker", messages=chat)
        chat.append({"role": "assistant", "content": said.choices[0].message.content or ""})
        total += "7" in chat[-1]["content"]
    return total / 4

tasks = {"train": [str(n) for n in range(50)], "test": [str(n) for n in range(50, 80)]}
workflow = Workflow(run=run, reward=lambda task, share: share, roles=("talker",), tasks=tasks)
"""


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    place = tmp_path_factory.mktemp("cut off")
    (place / "chat_that_grows.py").write_text(CHAT)
    env = {"id": f"workflow:{place / 'chat_that_grows.py'}:workflow"}
    table = {**tomllib.loads(RUN), "env": env}
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
