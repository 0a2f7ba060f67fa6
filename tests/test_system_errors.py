"""What the system refuses, and files that say what cannot be, are a sentence, never a traceback."""

import errno
import json
import os
import resource
import shutil
import sys

import pytest

import pettingllms_trainers.runs.folder as folder_module
from pettingllms.cli.app import run as pettingllms
from pettingllms_trainers.cli import main as pettingllms_train

SHORT = ["--rollout.num-levels=1", "--evaluation.num-episodes=1", "--warm-start.num-episodes=1"]
SHORT += ["--warm-start.num-steps=1"]
TRAIN = ["recipe:plan_path", "--num-steps=1", *SHORT, "--logging.no-tensorboard"]
EVAL = ["eval", "plan_path_v0", "-n", "2", "-p"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")


def test_a_folder_whose_name_is_not_utf8(capsys):
    name = os.fsdecode(b"bad\xff")
    assert pettingllms([*EVAL, "random", "--out", name]) == 1
    assert pettingllms_train([*TRAIN, "--output-dir", name]) == 2
    assert capsys.readouterr().err.count("is not UTF-8, so no file can name it; rename it") == 2
    assert not os.path.lexists(name)


def test_a_port_that_no_machine_has(capsys):
    assert pettingllms([*EVAL, "openai:m@http://127.0.0.1:99999/v1"]) == 2
    assert "invalid address of the server" in capsys.readouterr().err
    flags = ["--env.id=plan_path_v0", '--policies.m.endpoints=["http://127.0.0.1:99999"]']
    assert pettingllms_train([*TRAIN, *flags]) == 2
    assert "0-65535" in capsys.readouterr().err


@pytest.mark.parametrize("tokens", [10**300, -1, 0.5, True])
def test_tokens_that_nobody_has_counted_are_not_believed(capsys, tokens):
    assert pettingllms([*EVAL, "random", "--out", "run"]) == 0
    with open("run/episodes.jsonl") as file:
        line = json.loads(file.readline())
    del line["crc"]  # as another writer has it
    next(iter(line["roles"].values()))["usage"]["prompt_tokens"] = tokens
    with open("run/episodes.jsonl", "w") as file:
        file.write(json.dumps(line) + "\n")
    assert pettingllms(["eval", "--resume", "run"]) == 1
    said = capsys.readouterr().err
    assert "line 1 is damaged" in said
    assert "prompt_tokens must be an integer" in said


@pytest.mark.parametrize(
    ("bytes_", "said"), [(2_000, "cannot be loaded: [Errno 27]"), (1_000_000, "(ulimit -f)")]
)
def test_a_file_may_not_grow(capsys, monkeypatch, bytes_, said):
    """At first the model cannot be made, then the checkpoint cannot be written."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # or half a file of it is left
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, before[1]))
    try:
        assert pettingllms_train([*TRAIN, "--output-dir", "run"]) in (1, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EIO, "the disk has failed to read or write ([Errno 5] Input/output error: 'run/me"),
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "the file system is read-only"),
        (None, "a file or folder is gone ([Errno 2] No such file or directory: 'run/metrics.jsonl"),
    ],
)
def test_what_happens_to_a_disk_during_a_run(monkeypatch, capsys, number, said):
    """An error of the system while metrics are written; None: the folder is deleted."""
    append = folder_module.open_to_append

    def failing(path):
        if path.name != "metrics.jsonl":
            return append(path)
        if number is not None:
            raise OSError(number, os.strerror(number), str(path))
        shutil.rmtree("run", ignore_errors=True)
        return append(path)

    monkeypatch.setattr(folder_module, "open_to_append", failing)
    assert pettingllms_train([*TRAIN, "--output-dir", "run"]) == 1
    found = capsys.readouterr().err
    assert said in found
    assert "try again; what was written before is kept: resume it" in found
