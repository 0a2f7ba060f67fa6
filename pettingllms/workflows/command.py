"""Commands as workflows: programs in any language, and agents of the command line, as they are."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms.arguments import check_texts
from pettingllms.errors import InvalidArgument
from pettingllms.workflows.definition import Client, WorkflowFailure
from pettingllms.workflows.isolation import scope

_GRACE_S = 2.0
"""Time in which a command that is told to end may put things in order."""
_MAX_TEXT = 1 << 20
"""Bytes of an answer, from its end."""
_MAX_SHOWN = 2000


@dataclass(frozen=True)
class Command:
    """A command as the `run` of a workflow.

    It runs in an empty folder of its own, with the variables by which clients of OpenAI and of
    Anthropic find the endpoint, `PETTINGLLMS_SEED`, and `Workflow.environ`. When the run ends, by a
    limit of time or otherwise, so does the command, with all processes of its group. Its clock is
    the machine's: what it asks must not depend on it.

    Raises:
        InvalidArgument: `arguments` are not texts, or `answer` leads out of the folder.
    """

    arguments: Sequence[str]
    """The program and its arguments. The task stands for ``{task}`` in them; where none has it, the
    task is the standard input. Tasks that are no texts are JSON."""
    answer: str = ""
    """The file, from the folder of the command on, whose text is the outcome; empty: the outcome is
    the last line that is printed."""

    def __post_init__(self) -> None:
        check_texts("arguments of the command", self.arguments, "a program and its arguments")
        if Path(self.answer).is_absolute() or ".." in Path(self.answer).parts:
            raise InvalidArgument("answer of the command", self.answer, "a path inside its folder")

    def __call__(self, task: Any, client: Client) -> str:
        """See `Workflow.run`.

        Raises:
            subprocess.CalledProcessError: The command failed.
            WorkflowFailure: It cannot be run here, or has written no answer.
        """
        text = task if isinstance(task, str) else json.dumps(task)
        arguments = [one.replace("{task}", text) for one in self.arguments]
        given = "" if arguments != [*self.arguments] else text
        own = scope()
        assert own is not None, "commands are run by workflows"
        environ = {**os.environ, **own.environ, "PETTINGLLMS_SEED": str(client.seed)}
        # Another one's temporary files may outlive it for a moment.
        kept = tempfile.TemporaryDirectory(prefix="pettingllms-", ignore_cleanup_errors=True)
        with kept as folder, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with _started(arguments, cwd=folder, env=environ, out=out, err=err) as process:
                own.at_end(lambda: _end(process))
                process.communicate(given.encode())
            if process.returncode:
                said = _tail(err, _MAX_SHOWN)
                raise subprocess.CalledProcessError(process.returncode, arguments[0], stderr=said)
            if not self.answer:
                lines = _tail(out, _MAX_TEXT).strip().splitlines()
                return lines[-1].strip() if lines else ""
            try:
                with (Path(folder) / self.answer).open("rb") as file:
                    return _tail(file, _MAX_TEXT)
            except OSError as error:
                raise WorkflowFailure(f"the command wrote no {self.answer}: {error}") from error


@contextlib.contextmanager
def _started(
    arguments: Sequence[str], *, cwd: str, env: dict[str, str], out: Any, err: Any
) -> Generator[subprocess.Popen[bytes]]:
    """A command in a group of its own, of which nothing is left afterwards."""
    try:
        process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    except OSError as error:
        raise WorkflowFailure(f"the command cannot be run: {error}") from error
    at_exit = atexit.register(lambda: _signal(process, signal.SIGKILL))
    try:
        yield process
    finally:
        atexit.unregister(at_exit)
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    # The group outlives its leader as long as anybody is in it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Tell a command to end, and end it if it does not."""
    if process.poll() is not None:
        return
    _signal(process, signal.SIGTERM)

    def insist() -> None:
        if process.poll() is None:
            _signal(process, signal.SIGKILL)

    last = threading.Timer(_GRACE_S, insist)
    last.daemon = True
    last.start()


def _tail(file: Any, most: int) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - most))
    return file.read().decode("utf-8", "replace").strip()
