"""Inputs and results of a run in the sandbox, and the verdict on what the server saw of it."""

from __future__ import annotations

import enum
import os
import re
import signal
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

from pettingllms.errors import InvalidArgument
from pettingllms.sandbox.jail import protocol

# A byte that is never UTF-8 in the place of each ASCII control character but tab and line ends.
_WITHOUT_CONTROLS = bytes(
    0xFF if (byte < 0x20 and byte not in b"\t\n\r") or byte == 0x7F else byte for byte in range(256)
)
_HIDDEN = "".join(map(chr, (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))))
"""Control characters beyond ASCII, and those that change the direction of text."""
_ADDRESS = re.compile(rb" at 0x[0-9a-f]{1,16}(?=>|\Z)")
"""As in ``<map object at 0x7f80>``, which may be cut off."""


MAX_OPEN_FILES = 4096


class Status(enum.StrEnum):
    """How a run ended. All but `SANDBOX_ERROR` are the program's doing."""

    OK = "ok"
    """It ran to its end with exit code 0, within all limits."""
    ERROR = "error"
    """It ended with another exit code or an uncaught exception."""
    SYNTAX_ERROR = "syntax_error"
    """It is not Python."""
    TIMEOUT = "timeout"
    """It did not end within `wall_s`."""
    CPU_LIMIT = "cpu_limit"
    """It used more processor time than `cpu_s`."""
    MEMORY_LIMIT = "memory_limit"
    """It ended with MemoryError, or the kernel killed it for lack of memory."""
    OUTPUT_LIMIT = "output_limit"
    """It wrote more than `output_bytes` to stdout or to stderr."""
    SIGNAL = "signal"
    """It died of a signal, such as a segmentation fault."""
    VIOLATION = "violation"
    """It made a system call that no fair program makes."""
    SANDBOX_ERROR = "sandbox_error"
    """The sandbox failed, twice; nothing is known about the program. Not to be counted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use.

    Raises:
        InvalidArgument: A limit is out of its range.
    """

    wall_s: float = 10.0
    """Time on the clock until the run is killed, in (0, 3600]."""
    cpu_s: float = 5.0
    """Processor time of all threads together, in (0, 3600]."""
    memory_bytes: int = 512 << 20
    """Address space on top of the bare interpreter's, at least 16 MiB."""
    output_bytes: int = 1 << 20
    """Maximum bytes of stdout, and of stderr, in [0, 1 GiB]. Also the size of any file."""
    max_processes: int = 32
    """Threads besides the first, in [0, 4096]. Further processes cannot be made at all."""
    max_open_files: int = 64
    """Open descriptors, in [16, 4096]; less where `Sandbox.describe()["max_open_files"]` is, so
    that the pipes of all workers stay within the user's budget."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("wall_s", 1e-3, 3600),
            ("cpu_s", 1e-3, 3600),
            ("memory_bytes", 16 << 20, 1 << 46),
            ("output_bytes", 0, 1 << 30),
            ("max_processes", 0, 4096),
            ("max_open_files", 16, MAX_OPEN_FILES),
        ):
            value = getattr(self, name)
            is_whole = isinstance(value, int) or name in ("wall_s", "cpu_s")
            if isinstance(value, bool) or not is_whole or not low <= value <= high:
                kind = "a number" if name in ("wall_s", "cpu_s") else "an integer"
                raise InvalidArgument(f"Limits.{name}", value, f"{kind} from {low} to {high}")


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """What one run did. Immutable, picklable, and safe to show to a model.

    Text is decoded as UTF-8; what is not UTF-8, and control characters other than tab and line
    ends, read as U+FFFD.
    """

    status: Status
    stdout: str
    stderr: str
    """What the program wrote to its standard error; for `SANDBOX_ERROR`, why the sandbox failed."""
    exit_code: int
    """Exit code of the program, or minus the number of the signal that ended it."""
    wall_s: float
    """Seconds on the clock from the start of the program to its end."""
    cpu_s: float
    """Processor time of all threads together, in seconds."""
    max_rss_bytes: int
    """Peak resident memory, with the interpreter's own."""
    truncated: bool
    """Whether stdout or stderr was cut at `output_bytes`."""
    starved: bool = False
    """Whether it ran out of `wall_s` while others kept it off the processors, so that the time-out
    may not be the program's own doing. The sandbox has then repeated it with nothing else running,
    unless its caller had many repeated for nothing; where it is still so, do not remember the
    result."""

    @property
    def is_ok(self) -> bool:
        """Whether the program ran to its end with exit code 0. Says nothing about its answer."""
        return self.status is Status.OK

    def excerpt(self, max_chars: int = 2000) -> str:
        """Status and output as bounded text for a prompt.

        The middle of a longer text is left out: a traceback is most useful at its end.

        Args:
            max_chars: Maximum characters of stdout, and of stderr, that are shown.
        """
        parts = [f"status: {self.status}"]
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            if text.strip():
                parts.append(f"{name}:\n{without_middle(text.rstrip(), max_chars)}")
        return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call of a function did."""

    execution: ExecutionResult
    value: Any = None
    """The returned value as JSON gives it back (a tuple is a list), if `has_value`; see
    `whole_number`.

    Data to compare: its texts hold whatever the program put there, but for addresses. `repr` is
    what people are shown.
    """
    has_value: bool = False
    """Whether the function returned something that JSON can say."""
    repr: str | None = None
    """`repr` of the returned value, cut at `output_bytes`, and as safe as output is; None if the
    call did not return."""


def whole_number(digits: str) -> int | str:
    """A whole number of JSON; one with more digits than Python reads is a text that says so."""
    # The limit keeps this process from work that is quadratic in what a program returned.
    limit = sys.get_int_max_str_digits()
    return int(digits) if not limit or len(digits) <= limit else f"whole number {digits}"


def clean(data: bytes) -> str:
    """Program output as text that is safe in a log, a terminal or a prompt.

    Each server has other addresses: what a policy reads, and so a seeded run, would differ by them.
    A fixed number of passes over the data, each at the speed of a copy, whatever the data is: this
    runs in the trainer's process, on up to `output_bytes` that an attacker chose.
    """
    text = without_addresses(data).translate(_WITHOUT_CONTROLS).decode("utf-8", "replace")
    if not text.isascii():
        for character in _HIDDEN:
            text = text.replace(character, "\ufffd")
    return text


def without_addresses(data: bytes) -> bytes:
    """Output in which a ``repr`` by default does not say where its object is."""
    return _ADDRESS.sub(b" at 0x...", data)


def sandbox_failure(reason: str) -> ExecutionResult:
    """The result of a run of which nothing is known, because the sandbox failed."""
    return ExecutionResult(Status.SANDBOX_ERROR, "", reason, -1, 0.0, 0.0, 0, truncated=False)


def without_middle(text: str, limit: int) -> str:
    """A text with at most `limit` of its characters; a line says how many are left out between."""
    if len(text) <= limit:
        return text
    head, rest = limit // 2, len(text) - limit
    return f"{text[:head]}\n... {rest} characters left out ...\n{text[head + rest :]}"


_ENOUGH_CPU = 0.9
_HARDLY_ASLEEP = 0.9


class ChildReport(NamedTuple):
    """What the fork server says about the end of one child."""

    number: int
    """Number of the run, as `Worker.send` gave it."""
    wait_status: int
    """As wait(2) gives it; -1 if the child could not be made."""
    wall_s: float
    """As in `ExecutionResult`, as are the next two."""
    cpu_s: float
    max_rss_bytes: int
    stage: int
    """The stage the child had reached before the program began (see `jail.protocol`)."""
    killed_for: int
    """0, or why the server killed the child: `OUT_OF_TIME`, `OUT_OF_CPU`."""
    reason: str
    """Why locking up failed, if it did."""
    runnable_s: float = 0.0
    """If it was late: for how long its busiest thread ran or waited for a processor."""


def judge(report: ChildReport, limits: Limits, stdout: bytes, stderr: bytes) -> ExecutionResult:
    """What the run is called, and its output as text.

    Args:
        report: The end of the child.
        limits: What the run was allowed.
        stdout: Up to one byte more than `limits.output_bytes`.
        stderr: As stdout.
    """
    if report.stage == protocol.SETTING_UP:
        reason = report.reason or "its time was over before it began"
        return sandbox_failure(f"the jail could not be locked: {reason}")
    cap = limits.output_bytes
    truncated = max(len(stdout), len(stderr)) > cap
    exit_code = os.waitstatus_to_exitcode(report.wait_status)
    return ExecutionResult(
        status=_status(report, limits, exit_code, stderr, truncated=truncated),
        stdout=clean(stdout[:cap]),
        stderr=clean(stderr[:cap]),
        exit_code=exit_code,
        wall_s=report.wall_s,
        cpu_s=report.cpu_s,
        max_rss_bytes=report.max_rss_bytes,
        truncated=truncated,
        starved=_is_starved(report, limits),
    )


def _is_starved(report: ChildReport, limits: Limits) -> bool:
    """Whether a time-out on the clock looks as if others had the processors.

    A program that had one to itself would have used its processor time up, or all the time on the
    clock. One that did not was asleep, or it waited for a processor; the kernel knows for how long.
    """
    enough_s = _ENOUGH_CPU * min(limits.cpu_s, limits.wall_s)
    is_short = report.killed_for == protocol.OUT_OF_TIME and report.cpu_s < enough_s
    return is_short and report.runnable_s >= _HARDLY_ASLEEP * limits.wall_s


def _status(
    report: ChildReport, limits: Limits, exit_code: int, stderr: bytes, *, truncated: bool
) -> Status:
    if exit_code == -signal.SIGSYS:
        return Status.VIOLATION
    if truncated or exit_code == -signal.SIGXFSZ:
        return Status.OUTPUT_LIMIT
    if report.killed_for == protocol.OUT_OF_CPU or report.cpu_s > limits.cpu_s:
        return Status.CPU_LIMIT
    if report.killed_for == protocol.OUT_OF_TIME:
        return Status.TIMEOUT
    if report.stage == protocol.NO_MEMORY:
        return Status.MEMORY_LIMIT
    if exit_code == -signal.SIGKILL:
        return _who_killed(report, limits)
    if exit_code < 0:
        return Status.SIGNAL
    if report.stage == protocol.BAD_SYNTAX:
        return Status.SYNTAX_ERROR
    if exit_code == 0:
        return Status.OK
    last_line = stderr.rstrip().rpartition(b"\n")[2]
    return Status.MEMORY_LIMIT if last_line.startswith(b"MemoryError") else Status.ERROR


def _who_killed(report: ChildReport, limits: Limits) -> Status:
    """A program cannot send SIGKILL, so the kernel did, or somebody outside."""
    if report.max_rss_bytes > limits.memory_bytes // 2:
        return Status.MEMORY_LIMIT
    return Status.SANDBOX_ERROR
