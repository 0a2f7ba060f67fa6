"""A folder that a process writes is refused to any other, until the process ends."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from pettingllms.cli.app import run as pettingllms
from pettingllms.errors import RunFolderError
from pettingllms.files import LOCK, owned
from pettingllms_trainers.cli import main as pettingllms_train

SHORT = ["--rollout.num-levels=1", "--evaluation.num-episodes=1", "--warm-start.num-episodes=1"]
SHORT += ["--warm-start.num-steps=1"]
TRAIN = [sys.executable, "-m", "pettingllms_trainers.cli"]
MAIN = [sys.executable, "-m", "pettingllms.cli"]


@pytest.fixture
def waiting(tmp_path):
    """A function that starts a command and waits until it holds a folder."""
    with contextlib.ExitStack() as stack:

        def start(command, folder):
            with (tmp_path / "output").open("wb") as output:
                process = subprocess.Popen(
                    [*map(str, command)], cwd=tmp_path, stdout=output, stderr=output
                )
            stack.callback(process.wait)
            stack.callback(process.kill)
            while not ((folder / LOCK).exists() and (folder / LOCK).read_text().endswith("}")):
                assert process.poll() is None, (tmp_path / "output").read_text()
                time.sleep(0.05)
            return process

        yield start


@pytest.fixture
def refused(capsys):
    """A function that runs a command, which says that a process holds its folder."""

    def refused(command, *arguments, pid):
        assert command([*map(str, arguments)]) in (1, 2)
        said = " ".join(capsys.readouterr().err.split())
        for part in (f"process {pid} on {socket.gethostname()} since", "started as", "Wait"):
            assert part in said

    return refused


def test_two_trainers_in_one_folder(waiting, refused, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    out, rest = tmp_path / "run", ["recipe:plan_path", "--output-dir", "run", *SHORT]
    # Its first evaluation alone takes longer than this test.
    endless = [*rest, "--evaluation.num-episodes=100000"]
    first = waiting([*TRAIN, *endless], out)
    first.send_signal(signal.SIGSTOP)  # it holds the folder, and no processor
    refused(pettingllms_train, *rest, "--num-steps=1", "--resume", pid=first.pid)
    refused(pettingllms_train, "warm-start", *rest, pid=first.pid)
    first.kill()
    first.wait()
    assert (out / LOCK).exists(), "what a dead process leaves is taken over"
    assert pettingllms_train([*rest, "--num-steps=0"]) == 0
    assert not (out / LOCK).exists()


def test_two_evaluations_in_one_folder(waiting, refused, chat_server, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    chat_server.then = "hang"
    evaluate = ["eval", "plan_path_v0", "-n", "2", "--out", "run", "-p"]
    first = waiting([*MAIN, *evaluate, chat_server.policy], tmp_path / "run")
    refused(pettingllms, *evaluate, "random", pid=first.pid)
    while not (tmp_path / "run" / "run.json").exists():
        assert first.poll() is None
        time.sleep(0.05)
    refused(pettingllms, "eval", "--trust", "--resume", "run", pid=first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert pettingllms([*evaluate, "random"]) == 0


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "-p", "random", "--quick", "--out"],
        ["crossplay", "one", "two", "--out"],
        ["blame", "plan_path_v0", "-p", "random", "-m", "2", "--out"],
    ],
    ids=lambda command: command[0],
)
def test_other_commands_leave_a_folder_that_is_written(command, refused, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        assert pettingllms(["eval", "plan_path_v0", "-p", "random", "-n", "1", "--out", name]) == 0
    with owned(tmp_path / "busy"):
        refused(pettingllms, *command, "busy", pid=os.getpid())
    assert not (tmp_path / "busy").exists()


def test_a_holder_of_this_process_counts_too_and_an_error_frees_the_folder(tmp_path):
    folder = tmp_path / "new" / "folder"
    with contextlib.suppress(ZeroDivisionError), owned(folder):
        with pytest.raises(RunFolderError, match=f"process {os.getpid()} on"), owned(folder):
            pass
        assert json.loads((folder / LOCK).read_text())["command"]
        raise ZeroDivisionError
    assert not folder.parent.exists(), "nothing was written"
    with owned(folder):
        (folder / "x").touch()
    assert [path.name for path in folder.iterdir()] == ["x"]


def test_the_lock_of_a_stranger_leads_nowhere_and_says_nothing_to_a_terminal(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"), owned(tmp_path):
        pass
    assert (tmp_path / "victim").read_text() == "mine"
    (tmp_path / LOCK).unlink()
    with owned(tmp_path):
        holder = {"host": "\x1b[2J", "pid": 1, "since": "", "command": ""}
        (tmp_path / LOCK).write_text(json.dumps(holder))
        with pytest.raises(RunFolderError) as caught, owned(tmp_path):
            pass
    assert str(caught.value).isprintable()


def test_a_folder_that_is_replaced_is_not_freed_for_others(tmp_path):
    """A run whose folder was deleted must not take away the lock of the next one."""
    with owned(tmp_path / "run"):
        (tmp_path / "run" / LOCK).rename(tmp_path / "deleted")
        other = json.dumps({"host": "h", "pid": 2, "since": "", "command": ""})
        (tmp_path / "run" / LOCK).write_text(other)
    assert (tmp_path / "run" / LOCK).read_text() == other
