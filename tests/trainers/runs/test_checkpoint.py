"""Checkpoints are whole or absent, and refused when they do not fit."""

import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pettingllms_trainers.backends.hf.state_file import read_state, write_state
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.runs.checkpoint import load_checkpoint, save_checkpoint


class Weights:
    """A policy whose state is one file."""

    def __init__(self, step):
        self.state = {"model": {"w": torch.full((3,), float(step))}, "names": ["a"]}

    def save_state(self, directory):
        write_state(directory / "state.pt", self.state)


def save(directory, step, keep=2):
    return save_checkpoint(
        directory,
        {"p": Weights(step), "a/b c": Weights(step)},
        step=step,
        num_levels_used=4 * step,
        config_hash="abc",
        keep=keep,
    )


def test_round_trip(tmp_path):
    save(tmp_path / "c", 3)
    found = load_checkpoint(tmp_path / "c", config_hash="abc")
    assert (found.step, found.num_levels_used) == (3, 12)
    assert list(found.policies) == ["p", "a/b c"]
    state = read_state(found.policies["p"] / "state.pt")
    assert torch.equal(state["model"]["w"], torch.full((3,), 3.0))
    assert state["names"] == ["a"]


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


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path):
    save(tmp_path, 1)
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


def test_a_missing_file_is_told(tmp_path):
    (save(tmp_path, 5) / "policy-1" / "state.pt").unlink()
    with pytest.raises(CheckpointError, match=r"policy-1/state.pt has 0 of \d+ bytes"):
        load_checkpoint(tmp_path, config_hash="abc")


@pytest.mark.parametrize("manifest", ["[]", '{"format": 1}', '{"a": 1}'])
def test_a_manifest_without_its_keys_is_refused(tmp_path, manifest):
    (save(tmp_path, 5) / "checkpoint.json").write_text(manifest)
    with pytest.raises(CheckpointError, match="lacks"):
        load_checkpoint(tmp_path, config_hash="abc")


def test_overwritten_bytes_are_found(tmp_path):
    path = save(tmp_path, 5) / "policy-0" / "state.pt"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(CheckpointError, match=r"policy-0/state\.pt has other bytes"):
        load_checkpoint(tmp_path, config_hash="abc")


@given(st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_is_refused(tmp_path, data):
    path = save(tmp_path, 5) / "policy-1" / "state.pt"
    content = bytearray(path.read_bytes())
    index = data.draw(st.integers(0, len(content) - 1))
    content[index] ^= 1 << data.draw(st.integers(0, 7))
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        with pytest.raises(CheckpointError, match="SHA-256 differs"):
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


def test_another_format_is_refused(tmp_path):
    manifest = save(tmp_path, 5) / "checkpoint.json"
    manifest.write_text(manifest.read_text().replace('"format": 4', '"format": 99'))
    with pytest.raises(CheckpointError, match="format 99"):
        load_checkpoint(tmp_path, config_hash="abc")


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
