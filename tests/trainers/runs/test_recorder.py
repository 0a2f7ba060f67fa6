"""What a run writes at its end: whole policies, by the main rank alone."""

from types import SimpleNamespace

import pytest

from pettingllms_trainers.config import Config
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.recorder import ProgressView, Recorder, SilentRecorder


class Writer:
    """Writes two files, as a model and its tokenizer; can fail in between."""

    def __init__(self, *, fails=False):
        self.fails = fails
        self.calls = []

    def save_pretrained(self, directory, *, final=None):
        self.calls.append((directory, final))
        (directory / "model").touch()
        if self.fails:
            raise OSError("the disk is full")
        (directory / "tokenizer").touch()


def recorder_and_pool(directory, writer, kind=Recorder):
    pool = SimpleNamespace(updaters=lambda: {"p": writer})
    config = Config(env={"id": "toy_echo_v0"}, policies={"p": {"model": "tiny"}}, roles={"a": "p"})
    return kind(RunDirectory(directory), config, ProgressView(), None), pool


def test_a_policy_is_written_beside_its_place(tmp_path):
    writer = Writer()
    recorder, pool = recorder_and_pool(tmp_path, writer)
    recorder.policies(pool)
    recorder.policies(pool)
    final = tmp_path / "policies" / "p"
    assert {path.name for path in final.iterdir()} == {"model", "tokenizer"}
    assert [path.name for path in final.parent.iterdir()] == ["p"]
    for directory, told in writer.calls:
        assert told == final
        assert directory.name.startswith(".")


def test_half_a_policy_never_has_its_name(tmp_path):
    recorder, pool = recorder_and_pool(tmp_path, Writer(fails=True))
    with pytest.raises(OSError, match="full"):
        recorder.policies(pool)
    assert not list((tmp_path / "policies").iterdir())


def test_other_ranks_take_part_and_move_nothing(tmp_path):
    """Where all are needed they call; that the main rank alone has files is the policy's affair."""
    calls = []
    silent = SimpleNamespace(save_pretrained=lambda *given, **_: calls.append(given))
    recorder, pool = recorder_and_pool(tmp_path, silent, SilentRecorder)
    recorder.policies(pool)
    assert len(calls) == 1
    assert not list(tmp_path.iterdir())
