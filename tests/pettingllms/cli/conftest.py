"""The command in a process of its own, and the server of the tests of policies."""

import os
import random
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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
    """Return a function that runs the command in this process; quicker than `cli`."""
    from pettingllms.cli.app import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments):
        capsys.readouterr()
        random_state = random.getstate()  # rich draws the ids of links from the global generator
        status = run([*map(str, arguments)])
        random.setstate(random_state)
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, printed.out, printed.err)

    return call


@pytest.fixture
def cli(command):
    """Return a function that runs the command and gives what `subprocess.run` gives."""

    def cli(*arguments, stdin="", **environment):
        done = subprocess.run(
            **command(*arguments, **environment), input=stdin, capture_output=True, timeout=120
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return cli
