"""The command in a process of its own, and the server of the tests of policies."""

import io
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from pettingllms.cli.app import run  # rich draws from the global generator when it is imported

_policies = runpy.run_path(str(Path(__file__).parents[1] / "policies" / "conftest.py"))
chat_server = _policies["chat_server"]


@pytest.fixture
def command(tmp_path):
    """Return a function that makes the arguments of `subprocess` for a call of the command."""

    def command(*arguments, **environment):
        variables = {key: value for key, value in os.environ.items() if key != "OPENAI_API_KEY"}
        variables |= {"COLUMNS": "160", "NO_COLOR": "1", **environment}
        return {
            "args": [sys.executable, "-m", "pettingllms.cli", *map(str, arguments)],
            "cwd": tmp_path,
            "env": variables,
            "text": True,
            "encoding": "utf-8",
        }

    return command


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Return a function that runs the command in this process; quicker than `cli` by a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments, stdin=""):
        capsys.readouterr()
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = run([*map(str, arguments)])
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, printed.out, printed.err)

    return call


@pytest.fixture
def cli(command):
    """Return a function that runs the command and gives what `subprocess.run` gives."""

    def cli(*arguments, stdin="", **environment):
        done = subprocess.run(
            **command(*arguments, **environment), input=stdin, capture_output=True, timeout=600
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return cli
