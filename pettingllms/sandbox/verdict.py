"""From what the fork server saw to what is said about the program. Pure functions."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

from pettingllms.sandbox.jail import child
from pettingllms.sandbox.jail.server import OUT_OF_CPU, OUT_OF_TIME
from pettingllms.sandbox.outcome import ExecutionResult, Limits, Status, clean, sandbox_failure

_ENOUGH_CPU = 0.9
_HARDLY_ASLEEP = 0.9


class ChildReport(NamedTuple):
    """What the fork server says about the end of one child."""

    number: int
    wait_status: int
    """As wait(2) gives it; -1 if the child could not be made."""
    wall_s: float
    cpu_s: float
    max_rss_bytes: int
    stage: int
    """The stage the child had reached before the program began (see `jail.child`)."""
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
    if report.stage == child.SETTING_UP:
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
    is_short = report.killed_for == OUT_OF_TIME and report.cpu_s < enough_s
    return is_short and report.runnable_s >= _HARDLY_ASLEEP * limits.wall_s


def _status(
    report: ChildReport, limits: Limits, exit_code: int, stderr: bytes, *, truncated: bool
) -> Status:
    if exit_code == -signal.SIGSYS:
        return Status.VIOLATION
    if truncated or exit_code == -signal.SIGXFSZ:
        return Status.OUTPUT_LIMIT
    if report.killed_for == OUT_OF_CPU or report.cpu_s > limits.cpu_s:
        return Status.CPU_LIMIT
    if report.killed_for == OUT_OF_TIME:
        return Status.TIMEOUT
    if report.stage == child.NO_MEMORY:
        return Status.MEMORY_LIMIT
    if exit_code == -signal.SIGKILL:
        return _who_killed(report, limits)
    if exit_code < 0:
        return Status.SIGNAL
    if report.stage == child.BAD_SYNTAX:
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
