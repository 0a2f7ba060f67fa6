"""Other ways of running a program: a fresh interpreter, and what the paper's public code does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RUNNER = """
import io, sys, typing
text = sys.stdin.read()
lines = iter(text.splitlines())
sys.stdin = io.StringIO(text)
with open("script.py") as file:
    source = file.read()
exec(source, {"__name__": "__main__", "input": lambda prompt="": next(lines), "List": typing.List})
"""


def spawn(code: str, stdin: str) -> str:
    """Run a program in a fresh interpreter."""
    flags = ["-I"] if "import" in code else ["-I", "-S"]
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False).stdout


def paper(code: str, stdin: str) -> str:
    """Run a program as the paper's public code does."""
    folder = Path(tempfile.mkdtemp(prefix="run_"))
    try:
        for name, text in (("script.py", code), ("runner.py", RUNNER), ("stdin.txt", stdin)):
            (folder / name).write_text(text)
        environment = {
            **os.environ,
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONTRACEMALLOC": "5",
        }
        with (
            open(folder / "stdin.txt") as source,
            open(folder / "stdout.txt", "w") as output,
            open(folder / "stderr.txt", "w") as errors,
        ):
            subprocess.run(
                [sys.executable, "-X", "dev", "-W", "default", "-u", str(folder / "runner.py")],
                stdin=source,
                stdout=output,
                stderr=errors,
                cwd=folder,
                env=environment,
                start_new_session=True,
                check=False,
            )
        return (folder / "stdout.txt").read_text()
    finally:
        shutil.rmtree(folder)
