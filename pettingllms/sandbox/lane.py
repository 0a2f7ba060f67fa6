"""One fork server, what it has in hand, and the thread that listens to it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from pettingllms.sandbox.outcome import ExecutionResult, sandbox_failure
from pettingllms.sandbox.verdict import ChildReport, judge
from pettingllms.sandbox.worker import ExecutionRequest, RunFiles, Worker

Finished = tuple[ExecutionResult, bytes]
"""A result, and what the driver of a called function reported (empty otherwise)."""


class SandboxRun:
    """A request on its way to a result."""

    __slots__ = ("attempts", "files", "future", "is_alone", "request", "runnable_s")

    def __init__(self, request: ExecutionRequest) -> None:
        self.request = request
        self.future: Future[Finished] = Future()
        self.files: RunFiles | None = None
        self.attempts = 0
        """How many servers died with it."""
        self.is_alone = False
        """Whether it is repeated with nothing else running."""
        self.runnable_s = 0.0
        """Of `ChildReport`."""

    def release(self) -> None:
        """Close the run's files."""
        if self.files is not None:
            self.files.close()
            self.files = None

    def finish(self, finished: Finished) -> None:
        """Give the result to whoever waits for it."""
        self.release()
        self.future.set_result(finished)

    def fail(self, error: Exception) -> None:
        """Raise `error` in whoever waits for the result."""
        self.release()
        if self.future.running() or self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def collect(self, report: ChildReport) -> Finished:
        """The result of a run that ended."""
        files, limits = self.files, self.request.limits
        assert files is not None
        most = limits.output_bytes + 1
        try:
            stdout, stderr = files.read(files.stdout, most), files.read(files.stderr, most)
            reported = files.read(files.result, most) if files.result >= 0 else b""
        except (OSError, MemoryError) as error:
            return sandbox_failure(f"the output could not be read: {error}"), b""
        report = report._replace(runnable_s=self.runnable_s)
        return judge(report, limits, stdout, stderr), reported


class Lane:
    """A fork server and the runs in its hands.

    Args:
        worker: The server.
        slots: Programs that it runs at the same time.
    """

    def __init__(self, worker: Worker, slots: int) -> None:
        self.worker = worker
        self.slots = slots
        self.in_flight: dict[int, SandboxRun] = {}
        self.last_event_s = time.monotonic()
        self.is_up = True
        self.lock = threading.Lock()
        """Held while something is handed over, and while the server is abandoned."""
        self.thread: threading.Thread | None = None

    @property
    def free(self) -> int:
        """How many more programs the server could run at once; can be negative."""
        return self.slots - len(self.in_flight)

    def is_overdue(self, grace_s: float) -> bool:
        """Whether some run should have been reported long ago."""
        if not self.in_flight:
            return False
        longest_s = max(run.request.limits.wall_s for run in self.in_flight.values())
        return time.monotonic() > self.last_event_s + longest_s + grace_s
