"""What a run writes: rollout trees, within a size, and at its end whole policies."""

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import run_toys
from run_toys import config_of, decision, program

from pettingllms.files import read_lines
from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.recorder import ProgressView, Recorder, TreeFile
from pettingllms_trainers.types import TokenCompletion, TreeOutcome


def tree(episode, rewards, text="ab"):
    """An episode with a decision per row of rewards, all of the same two tokens."""
    completion = TokenCompletion(
        token_ids=(97, 98),
        logprobs=(-0.25, -0.123456),
        text=text,
        finish_reason="stop",
        entropies=(1.5, 0.5),
    )
    decisions = []
    for index, row in enumerate(rewards):
        made = decision(row, episode=episode, index=index, turn=index, policy="p")
        own = tuple(replace(one, completion=completion) for one in made.candidates)
        decisions.append(replace(made, candidates=own))
    outcome = TreeOutcome(success=False, terminated=False, truncated=True, num_turns=1)
    return run_toys.tree(*decisions, episode=episode, outcome=outcome)


@pytest.fixture
def tree_file(tmp_path):
    asked = []

    def token_texts(ids):
        asked.append(ids)
        return [chr(token) for token in ids]

    pool = SimpleNamespace(policies={"p": SimpleNamespace(token_texts=token_texts)})

    def make(num_steps=10, **logging):
        config = config_of(num_steps=num_steps, logging=logging)
        files, notes = RunDirectory(tmp_path), []
        written = TreeFile(files, config, notes.append)

        def record(step, trees):
            written.training(step, trees, score_decisions(trees, AtGrpo()), pool)

        return SimpleNamespace(
            record=record,
            resume=written.resume,
            held_out=lambda step, trees: written.held_out(step, trees, pool),
            lines=lambda: read_lines(files.rollouts),
            size=lambda: files.rollouts.stat().st_size,
            notes=notes,
            asked=asked,
        )

    return make


@pytest.mark.parametrize(
    ("num_steps", "every", "recorded"), [(3, 10, [1, 3]), (10, 4, [1, 4, 8, 10]), (10, 0, [])]
)
def test_the_first_the_last_and_every_nth_step_are_recorded(tree_file, num_steps, every, recorded):
    file = tree_file(num_steps, rollouts_every=every)
    file.held_out(0, [tree(0, [(0.0,)])])
    for step in range(1, num_steps + 1):
        file.record(step, [tree(0, [(0.0, 1.0)])])
    assert [line["step"] for line in file.lines()] == [0] * (every > 0) + recorded


def test_trees_with_mixed_rewards_come_first(tree_file):
    even, one, two = [(1.0, 1.0)] * 2, [(1.0, 0.0), (1.0, 1.0)], [(1.0, 0.0)] * 2
    file = tree_file(num_rollouts=3)
    file.record(1, [tree(0, even), tree(1, one), tree(2, two), tree(3, one)])
    assert [line["episode"] for line in file.lines()] == [2, 1, 3]


def test_a_tree_has_its_tokens_and_all_its_figures(tree_file):
    file = tree_file(num_rollouts=1)
    file.record(1, [tree(0, [(0.0, 1.0)])])
    (line,) = file.lines()
    assert (line["set"], line["env"]) == ("training", {})
    (decision,) = line["decisions"]
    low, high = decision["candidates"]
    expected = {"text": ["a", "b"], "logprob": [-0.25, -0.1235], "entropy": [1.5, 0.5]}
    assert low["tokens"] == expected
    assert low["advantage"] == -high["advantage"] != 0
    assert decision["temperature"] == 1.0, "figures of a decision are written by their names"


def test_a_tokenizer_is_asked_once_for_all_trees_of_a_step(tree_file):
    file = tree_file(num_rollouts=4)
    file.record(1, [tree(episode, [(0.0, 1.0)] * 3) for episode in range(4)])
    assert len(file.lines()) == 4
    assert file.asked == [[97, 98]]


@pytest.mark.parametrize("num_steps", [40, 400])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_the_file_stays_within_its_size(tree_file, num_steps, is_resumed):
    wanted = {"num_rollouts": 1, "rollouts_every": 1, "max_rollouts_mb": 0.02}
    file = tree_file(num_steps, **wanted)
    file.held_out(0, [tree(0, [(0.5,)])])
    for step in range(1, num_steps + 1):
        if is_resumed and step % 7 == 0:
            file = tree_file(num_steps, **wanted)
            file.resume()
        file.record(step, [tree(0, [(0.0, 1.0)])])
        assert file.size() <= 20_000
    file.held_out(num_steps, [tree(0, [(0.5,)])])
    steps = [line["step"] for line in file.lines() if line["set"] == "training"]
    assert (steps[0], steps[-1]) == (1, num_steps)
    gaps = {b - a for a, b in itertools.pairwise(steps[1:-1])}
    assert len(gaps) == 1, "what is between lies evenly"
    held_out = [line["step"] for line in file.lines() if line["set"] == "held_out"]
    assert held_out == [0, num_steps]
    assert file.notes == []


def test_a_tree_that_is_larger_than_the_file_may_be_is_reported(tree_file):
    file = tree_file(max_rollouts_mb=0.002)
    file.record(1, [tree(0, [(0.0, 1.0)], text="x" * 3000)])
    assert file.lines() == []
    assert "logging.max_rollouts_mb" in file.notes[0]
    assert json.dumps(file.notes)


class HalfWriter:
    """Fails between the files of a model and of its tokenizer."""

    def save_pretrained(self, directory, *, final=None):
        (directory / "model").touch()
        raise OSError("the disk is full")


def test_half_a_policy_never_has_its_name(tmp_path):
    recorder = Recorder(RunDirectory(tmp_path), config_of(), ProgressView(), None)
    pool = SimpleNamespace(updaters=lambda: {"p": HalfWriter()})
    with pytest.raises(OSError, match="full"):
        recorder.policies(pool)
    assert not list((tmp_path / "policies").iterdir())


def test_a_run_goes_on_where_nobody_reads_what_it_prints():
    """As with `pettingllms-train FILE | head -1`."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", program("unread")], **pipes, text=True) as process:
        process.stdout.close()
        process.stdin.close()
        said = process.stderr.read()
    assert process.returncode == 7
    assert said.count("nobody reads what it prints (BrokenPipeError(") == 1
