"""The command, in this process."""

import io
import subprocess

import pytest

from pettingllms.cli.app import run  # rich draws from the global generator when it is imported


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Return a function that runs the command in this process."""
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
