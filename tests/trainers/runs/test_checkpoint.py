"""Checkpoints are whole or absent, and refused when they do not fit."""

import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pettingllms.curriculum import LevelRecord
from pettingllms.ends import End
from pettingllms_trainers.backends.hf.weights import read_state, write_state
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.rollout.candidates import VersionedCompletions
from pettingllms_trainers.rollout.sampler import PendingStep, Sample
from pettingllms_trainers.runs.checkpoint import load_checkpoint, save_checkpoint
from pettingllms_trainers.types import (
    Candidate,
    Decision,
    DecisionKey,
    RolloutTree,
    TokenCompletion,
    TreeOutcome,
)


class Weights:
    """A policy whose state is one file."""

    def __init__(self, step):
        self.state = {"model": {"w": torch.full((3,), float(step))}, "names": ["a"]}

    def save_state(self, directory):
        write_state(directory / "state.pt", self.state)


def save(directory, step, keep=2, flights=(), records=None):
    return save_checkpoint(
        directory,
        {"p": Weights(step), "a/b c": Weights(step)},
        step=step,
        num_levels_used=4 * step,
        flights=flights,
        records=records,
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


numbers = st.floats(allow_nan=False, allow_infinity=False)
completions = st.builds(
    lambda pairs, text: TokenCompletion(
        token_ids=tuple(token for token, _ in pairs),
        logprobs=tuple(logprob for _, logprob in pairs),
        text=text,
        finish_reason="stop",
        entropies=tuple(abs(logprob) for _, logprob in pairs),
    ),
    st.lists(st.tuples(st.integers(0, 10**6), numbers)),
    st.text(),
)
candidates = st.builds(
    Candidate,
    completion=completions,
    reward=numbers,
    team=numbers,
    local=numbers,
    value=numbers,
    parse_error=st.none() | st.text(),
    success=st.booleans(),
)
decisions = st.builds(
    Decision,
    key=st.builds(DecisionKey, st.integers(0), st.integers(0), st.text(), st.integers(0)),
    role=st.text(),
    policy=st.text(),
    prompt_ids=st.lists(st.integers(0)).map(tuple),
    observation=st.text(st.characters()),  # half of a surrogate pair too
    candidates=st.lists(candidates, max_size=2).map(tuple),
    temperature=numbers,
    chosen=st.none() | st.integers(0, 3),
    version=st.none() | st.integers(0),
)
outcomes = st.builds(
    TreeOutcome,
    success=st.booleans(),
    terminated=st.booleans(),
    truncated=st.booleans(),
    returns=st.dictionaries(st.text(), numbers),
    num_turns=st.integers(0),
)
trees = st.builds(
    RolloutTree,
    episode=st.integers(0),
    env_seed=st.integers(0),
    initial_state_hash=st.text(),
    decisions=st.lists(decisions, max_size=2).map(tuple),
    outcome=st.none() | outcomes,
    end=st.sampled_from(End),
    cause=st.none() | st.text(),
)


counts = st.integers(0)
samples = st.builds(
    Sample,
    st.lists(trees, max_size=2),
    counts,
    counts,
    numbers,
    numbers,
    memory=st.dictionaries(st.text(), numbers),
)
answers = st.builds(
    VersionedCompletions, st.lists(completions, max_size=2), st.none() | st.integers(0)
)
flights = st.builds(
    PendingStep,
    step=counts,
    version=counts,
    memory=st.dictionaries(st.text(), numbers),
    records=st.dictionaries(st.text(), st.lists(st.builds(LevelRecord, numbers, numbers))),
    first_levels=st.lists(st.integers(0)),
    answers=st.dictionaries(st.text(), answers, max_size=2),
    values=st.dictionaries(st.text(), numbers, max_size=2),
    sample=st.none() | samples,
)


@given(st.lists(flights, max_size=2))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_rollouts_in_flight_come_back_exactly(tmp_path_factory, found):
    folder = tmp_path_factory.mktemp("c")
    save(folder, 3, flights=found)
    assert list(load_checkpoint(folder, config_hash="abc").flights) == found


def test_no_checkpoint_yet(tmp_path):
    assert load_checkpoint(tmp_path / "none", config_hash="abc") is None
    assert load_checkpoint(tmp_path, config_hash="abc") is None


def test_the_newest_are_kept_and_the_newest_is_loaded(tmp_path):
    for step in (0, 9, 10, 100):
        save(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-00000100"]
    assert load_checkpoint(tmp_path, config_hash="abc").step == 100


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


@pytest.mark.parametrize("file", ["policy-0/state.pt", "policy-1/state.pt", "checkpoint.json"])
@pytest.mark.parametrize("size", [0, 1, 0.5, -1])
def test_a_truncated_checkpoint_is_refused(tmp_path, file, size):
    path = save(tmp_path, 5) / file
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * size) if 0 < size < 1 else size])
    with pytest.raises(CheckpointError, match=f"damaged: .*{file}"):
        load_checkpoint(tmp_path, config_hash="abc")


@given(st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_of_any_file_is_refused(tmp_path, data):
    folder = save(tmp_path, 5, flights=[PendingStep(step=5, version=4, memory={}, records={})])
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


@pytest.mark.parametrize("name", ["checkpoint.json", "checkpoint.sha256"])
def test_every_byte_of_what_vouches_for_the_rest_counts(tmp_path, name):
    path = save(tmp_path, 5) / name
    whole = path.read_bytes()
    for index in range(len(whole)):
        content = bytearray(whole)
        content[index] ^= 1 << index % 8
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="damaged"):
            load_checkpoint(tmp_path, config_hash="abc")
    path.write_bytes(whole)
    assert load_checkpoint(tmp_path, config_hash="abc").step == 5


def test_nothing_is_unpickled_but_plain_data(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, ("touch " + str(tmp_path / "hacked"),))

    path = tmp_path / "state.pt"
    torch.save({"model": Evil()}, path)
    with pytest.raises(CheckpointError):
        read_state(path)
    assert not (tmp_path / "hacked").exists()


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def full(*arguments, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert load_checkpoint(tmp_path, config_hash="abc").step == 1


def test_leftovers_of_a_crash_are_ignored_and_removed(tmp_path):
    save(tmp_path, 1)
    leftover = tmp_path / ".partial-step-00000002"
    leftover.mkdir()
    (leftover / "checkpoint.json").write_bytes(b"half")
    assert load_checkpoint(tmp_path, config_hash="abc").step == 1
    save(tmp_path, 2)
    assert not leftover.exists()
