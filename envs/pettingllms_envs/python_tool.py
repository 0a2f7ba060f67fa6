"""`tool="python"`: the tool agent writes a program, the sandbox runs it, the planner reads both.

Shared by the games. A program is untrusted: it runs in `pettingllms.sandbox` and nowhere else. It
is given the board as text on stdin; what it prints is read as an answer by the game's own reader.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pettingllms import parsing
from pettingllms.errors import SandboxError
from pettingllms.parsing import one_line
from pettingllms.types import ParseError

if TYPE_CHECKING:
    from pettingllms.sandbox import ExecutionResult

OUTPUT_BYTES = 64 << 10
"""What one program may print."""

MAX_SOURCE_CHARS = 20_000
"""Longer programs are unreadable answers."""

PROMPT_CHARS = 1000
"""Maximum characters of a program, of its stdout and of its stderr that a planner reads."""

ENDING_CHARS = 100
"""Maximum characters of the last line of stderr in `ProgramRun.ending`."""

INSTRUCTIONS = """\
You may think first. End your answer with one Python 3 program in a code block:
```python
import sys
board = sys.stdin.read()
...
```
It runs once, for at most 2 seconds, with the standard library and without files or network."""
"""The part of a tool agent's prompt that is the same in all games."""


_Answer = TypeVar("_Answer")


class ProgramRun(NamedTuple):
    """What a program did."""

    is_ok: bool
    """Whether it ran to its end within the limits."""
    stdout: str
    """What it printed, at most `OUTPUT_BYTES`."""
    report: str
    """Bounded text for the planner: how it ended and what it printed."""
    ending: str
    """The same in a few words: the status, and the last line of stderr if there is one."""

    def answer(self, read: Callable[[str], _Answer | ParseError]) -> _Answer | ParseError:
        """What a game's reader finds in stdout, or why there is no answer.

        A program that failed has none, whatever it printed.
        """
        if not self.is_ok:
            return ParseError(f"the program failed: {self.ending}")
        found = read(self.stdout)
        if isinstance(found, ParseError):
            return ParseError(f"what the program printed could not be read: {found.reason}")
        return found


def read_program(text: str) -> str | ParseError:
    """Read the program of an answer; see `pettingllms.parsing`."""
    return parsing.read_program(text, MAX_SOURCE_CHARS)


class _Starved(Exception):
    """The fields of a `ProgramRun` that tells of a crowded machine: not to be remembered."""


def run_program(source: str, stdin: str) -> ProgramRun:
    """Run a program in the sandbox, or tell what the same program did on the same input before.

    Raises:
        SandboxError: If the sandbox failed, so that nothing is known about the program.
    """
    try:
        return _remembered_run(source, stdin)
    except _Starved as starved:
        return ProgramRun(*starved.args)


@lru_cache(maxsize=256)
def _remembered_run(source: str, stdin: str) -> ProgramRun:
    # Not at the top: most teams of these games write no programs, and need no sandbox.
    from pettingllms.sandbox import Limits, Status, default_sandbox

    limits = Limits(wall_s=10.0, cpu_s=2.0, memory_bytes=256 << 20, output_bytes=OUTPUT_BYTES)
    result = default_sandbox().run(source, stdin, limits)
    if result.status is Status.SANDBOX_ERROR:
        raise SandboxError(f"the program of a tool agent could not be run: {result.stderr}")
    run = ProgramRun(result.is_ok, result.stdout, _report(result), _ending(result))
    if result.starved:
        raise _Starved(*run)
    return run


def _report(result: ExecutionResult) -> str:
    if result.is_ok and not result.stdout.strip():
        return "status: ok, nothing was printed"
    return result.excerpt(PROMPT_CHARS)


def _ending(result: ExecutionResult) -> str:
    last_line = result.stderr.strip().rpartition("\n")[2]
    said = f", {one_line(last_line, ENDING_CHARS)}" if last_line else ""
    return str(result.status).replace("_", " ") + said


def show_program(source: str) -> str:
    """A program, cut to what a planner reads of it."""
    source = source.strip("\n")
    if len(source) <= PROMPT_CHARS:
        return source
    return source[:PROMPT_CHARS] + f"\n... {len(source) - PROMPT_CHARS} characters left out ..."
