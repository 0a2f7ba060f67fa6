"""Checkpoints are whole or absent, and refused when they do not fit."""

import os
import shutil
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_toys import candidate, decision, tree

from pettingllms.curriculum import LevelRecord
from pettingllms.ends import End
from pettingllms_trainers.backends.hf.weights import read_state, write_share
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.rollout.candidates import VersionedCompletions
from pettingllms_trainers.rollout.sampler import PendingStep, Sample
from pettingllms_trainers.runs.checkpoint import TrainingProgress, load_checkpoint, save_checkpoint
from pettingllms_trainers.types import TokenCompletion, TreeOutcome


class Weights:
    """A policy whose state is one file."""

    def __init__(self, step):
        self.state = {"model": {"w": torch.full((3,), float(step))}, "names": ["a"]}

    def save_state(self, directory):
        write_share(directory, 0, self.state)


def save(directory, step, keep=2, pending=(), records=None):
    return save_checkpoint(
        directory,
        {"p": Weights(step), "a/b c": Weights(step)},
        TrainingProgress(
            step=step, num_levels_used=4 * step, pending=pending, records=records or {}
        ),
        config_hash="abc",
        keep=keep,
    )


def test_round_trip(tmp_path):
    records = {"": [LevelRecord(0.1 + 0.2, 2 / 3), LevelRecord(0, 1e-17)]}
    save(tmp_path / "c", 3, records=records)
    found = load_checkpoint(tmp_path / "c", config_hash="abc")
    assert (found.step, found.num_levels_used, found.records) == (3, 12, records)
    assert list(found.policies) == ["p", "a/b c"]
    state = read_state(found.policies["p"] / "state.pt")
    assert torch.equal(state["model"]["w"], torch.full((3,), 3.0))
    assert state["names"] == ["a"]


def test_rollouts_in_flight_come_back_exactly(tmp_path):
    """Also halves of surrogate pairs, and numbers that no decimal fraction of a few digits is."""
    answer = TokenCompletion(
        token_ids=(0, 10**6),
        logprobs=(-0.1 - 0.2, -1e-17),
        text="\u00e9",
        finish_reason="stop",
        entropies=(1 / 3, 5e-324),
    )
    played = decision([0.1 + 0.2, -1e300], value=2 / 3, local=1 / 7, version=3, chosen=1)
    odd = decision([], chosen=None, observation="\udfff\n", temperature=0.7, prompt_ids=())
    mistake = candidate(0.0, completion=answer, parse_error="no", success=True)
    outcome = TreeOutcome(
        success=True, terminated=True, truncated=False, num_turns=2, returns={"a": 1 / 3}
    )
    trees = [tree(played, replace(odd, candidates=(mistake,)), outcome=outcome)]
    trees += [tree(odd, end=end, cause="\u00e9", episode=number) for number, end in enumerate(End)]
    flight = PendingStep(
        step=5,
        version=4,
        memory={"\u00e9": [1 / 3, None]},
        records={"a": [LevelRecord(0.1 + 0.2, 1e-17)]},
        first_levels=[3, 7],
        answers={"0 1": VersionedCompletions([answer], 2), "": VersionedCompletions([], None)},
        values={"0 1": 1 / 3},
    )
    pending = [flight, replace(flight, sample=Sample(trees, 1, 2, 0.5, 1 / 3, memory={"n": 1}))]
    save(tmp_path, 3, pending=pending)
    assert list(load_checkpoint(tmp_path, config_hash="abc").pending) == pending


def test_no_checkpoint_yet(tmp_path):
    assert load_checkpoint(tmp_path / "none", config_hash="abc") is None
    assert load_checkpoint(tmp_path, config_hash="abc") is None


def test_saving_the_same_step_again_changes_nothing(tmp_path):
    path = save(tmp_path, 1)
    before = (path / "checkpoint.json").stat().st_mtime_ns
    assert save(tmp_path, 1) == path
    assert (path / "checkpoint.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "policy-1/state.pt").unlink(), r"1/state\.pt has 0 of \d+ bytes"),
        (lambda path: (path / "policy-0/x").touch(), r"not written with it: policy-0/x"),
        (
            lambda path: path.rename(path.with_name("step-00000012")),
            "of train step 5.*step-00000005",
        ),
    ],
    ids=["missing", "foreign", "renamed"],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path, spoil, message):
    spoil(save(tmp_path, 5))
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path, config_hash="abc")


def test_another_configuration_or_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pettingllms_trainers.runs.checkpoint._FORMAT", 99)
    save(tmp_path, 5)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="format 99"):
        load_checkpoint(tmp_path, config_hash="abc")
    save(tmp_path, 6)
    with pytest.raises(CheckpointError, match="another configuration"):
        load_checkpoint(tmp_path, config_hash="xyz")


@given(st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_of_any_file_is_refused(tmp_path, data):
    folder = save(tmp_path, 5, pending=[PendingStep(step=5, version=4, memory={}, records={})])
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    whole = path.read_bytes()
    content = bytearray(whole)
    content[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        with pytest.raises(CheckpointError, match=r"damaged.*other bytes"):
            load_checkpoint(tmp_path, config_hash="abc")
    finally:
        path.write_bytes(whole)


def test_nothing_is_unpickled_but_plain_data(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, ("touch " + str(tmp_path / "hacked"),))

    path = tmp_path / "state.pt"
    torch.save({"model": Evil()}, path)
    with pytest.raises(CheckpointError):
        read_state(path)
    assert not (tmp_path / "hacked").exists()


def test_leftovers_of_a_crash_are_ignored_and_removed(tmp_path, monkeypatch):
    save(tmp_path, 1)
    leftover = tmp_path / ".partial-step-00000002"
    leftover.mkdir()
    (leftover / "checkpoint.json").write_bytes(b"half")
    assert load_checkpoint(tmp_path, config_hash="abc").step == 1
    save(tmp_path, 2)
    assert not leftover.exists()

    def killed(path, ignore_errors=False):
        if not ignore_errors:
            raise OSError("killed")

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(OSError, match="killed"):
        save(tmp_path, 3)
    assert {path.name[-1] for path in tmp_path.glob("step-*")} == {"2", "3"}
