"""Fork servers behind one queue: who runs what, and what happens when a server dies."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pettingllms.errors import SandboxError
from pettingllms.sandbox.outcome import ExecutionResult, Status, sandbox_failure
from pettingllms.sandbox.verdict import Report, judge
from pettingllms.sandbox.worker import Request, RunFiles, Worker, WorkerDied

logger = logging.getLogger(__name__)

_MAX_ATTEMPTS = 2
_TICK_S = 5.0
_GRACE_S = 20.0
"""How much longer than its wall limit a run may take to be reported on an overloaded machine."""
_PREFETCH = 1
"""Jobs that wait in a server's socket, so that it need not wait for us between two programs."""
_RUNS_PER_SERVER = 20_000

Finished = tuple[ExecutionResult, bytes]
"""A result, and what the driver of a called function reported (empty otherwise)."""


class _Run:
    __slots__ = ("attempts", "files", "future", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.future: Future[Finished] = Future()
        self.files: RunFiles | None = None
        self.attempts = 0

    def release(self) -> None:
        if self.files is not None:
            self.files.close()
            self.files = None


class _Lane:
    """One fork server, what it has in hand, and the thread that listens to it."""

    def __init__(self, worker: Worker, capacity: int) -> None:
        self.worker = worker
        self.capacity = capacity
        self.in_flight: dict[int, _Run] = {}
        self.last_event_s = time.monotonic()
        self.is_up = True
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    @property
    def free(self) -> int:
        return self.capacity - len(self.in_flight) if self.is_up else 0


class Pool:
    """Runs requests on fork servers, each at most once unless its server died.

    Args:
        start: Starts one server; called again for each replacement.
        num_servers: How many servers there are.
        slots: How many programs one server runs at a time.
        num_tasks: For the limits of a request, the RLIMIT_NPROC its child gets.

    Raises:
        SandboxError: A server could not be started.
    """

    def __init__(
        self,
        start: Callable[[], Worker],
        num_servers: int,
        slots: int,
        num_tasks: Callable[[int], int],
    ) -> None:
        self._start = start
        self._num_tasks = num_tasks
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._queue: deque[_Run] = deque()
        self._next_number = 0
        self._is_closed = False
        self._lanes: list[_Lane] = []
        self.facts: dict[str, Any] = {}
        self.num_restarts = 0
        self._start_lanes(num_servers, slots + _PREFETCH)
        _pools.add(self)

    def _start_lanes(self, num_servers: int, capacity: int) -> None:
        try:
            for _ in range(num_servers):
                self._lanes.append(_Lane(self._start(), capacity))
            for lane in self._lanes:
                self.facts = lane.worker.wait_until_ready()
        except SandboxError:
            for lane in self._lanes:
                lane.worker.kill()
            raise
        for index, lane in enumerate(self._lanes):
            name = f"pettingllms-sandbox-{index}"
            lane.thread = threading.Thread(
                target=self._listen, args=(lane,), name=name, daemon=True
            )
            lane.thread.start()

    @property
    def belongs_here(self) -> bool:
        """Whether this process made the pool (and not the one it was forked from)."""
        return self._pid == os.getpid()

    @property
    def is_closed(self) -> bool:
        """Whether the pool takes no more requests."""
        return self._is_closed

    @property
    def server_pids(self) -> list[int]:
        """Pids of the servers, for whoever watches the machine."""
        return [lane.worker.pid for lane in self._lanes]

    @property
    def capacity(self) -> int:
        """How many requests can be in the servers' hands at once."""
        return sum(lane.capacity for lane in self._lanes)

    def submit(self, request: Request) -> Future[Finished]:
        """Queue a request.

        Raises:
            SandboxError: The pool is closed, or all its servers are gone for good.
        """
        run = _Run(request)
        with self._lock:
            if self._is_closed:
                raise SandboxError("this sandbox is closed. Make a new one.")
            self._queue.append(run)
        self._pump()
        return run.future

    def _pump(self) -> None:
        """Give waiting requests to servers with free hands."""
        while True:
            with self._lock:
                lane = max(self._lanes, key=lambda lane: lane.free)
                if not self._queue or lane.free <= 0:
                    return
                run = self._queue.popleft()
                if run.attempts == 0 and not run.future.set_running_or_notify_cancel():
                    continue
                number = self._next_number
                self._next_number += 1
                lane.in_flight[number] = run
                if len(lane.in_flight) == 1:
                    lane.last_event_s = time.monotonic()
                worker = lane.worker
            self._hand_over(lane, worker, number, run)

    def _hand_over(self, lane: _Lane, worker: Worker, number: int, run: _Run) -> None:
        limits = run.request.limits
        with lane.lock:
            if lane.in_flight.get(number) is not run:
                return
            try:
                run.files = RunFiles(run.request)
            except OSError as error:
                with self._lock:
                    del lane.in_flight[number]
                self._finish(run, (sandbox_failure(f"no memory file for the run: {error}"), b""))
                return
            worker.send(number, run.files, limits, self._num_tasks(limits.max_processes))

    def _listen(self, lane: _Lane) -> None:
        while True:
            try:
                report = lane.worker.receive(_TICK_S)
            except WorkerDied as error:
                if not self._replace(lane, str(error)):
                    return
                continue
            if report is None:
                if self._is_overdue(lane) and not self._replace(lane, "it does not answer"):
                    return
                continue
            with self._lock:
                run = lane.in_flight.pop(report.number)
                lane.last_event_s = time.monotonic()
                if lane.worker.num_runs >= _RUNS_PER_SERVER:
                    lane.is_up = False
            self._pump()
            self._conclude(run, report)
            if not lane.is_up and not lane.in_flight and not self._replace(lane, ""):
                return

    def _conclude(self, run: _Run, report: Report) -> None:
        finished = _collect(run, report)
        if finished[0].status is Status.SANDBOX_ERROR and run.attempts + 1 < _MAX_ATTEMPTS:
            run.release()
            self._requeue([run], finished[0].stderr)
            self._pump()
        else:
            self._finish(run, finished)

    def _is_overdue(self, lane: _Lane) -> bool:
        with self._lock:
            if not lane.in_flight:
                return False
            longest_s = max(run.request.limits.wall_s for run in lane.in_flight.values())
            return time.monotonic() > lane.last_event_s + longest_s + _GRACE_S

    def _replace(self, lane: _Lane, failure: str) -> bool:
        """Start a new server for a lane. Returns whether the lane goes on."""
        with lane.lock, self._lock:
            lane.is_up = False
            runs = list(lane.in_flight.values())
            lane.in_flight.clear()
            is_closed = self._is_closed
        if failure and not is_closed:
            lane.worker.kill()
        else:
            lane.worker.stop()
        for run in runs:
            run.release()
        if is_closed:
            self._fail(runs, SandboxError("the sandbox was closed while the program ran"))
            return False
        if failure:
            logger.warning("a fork server died and is replaced: %s", failure)
        self._requeue(runs, failure)
        return self._restart(lane)

    def _requeue(self, runs: list[_Run], failure: str) -> None:
        for run in runs:
            run.attempts += 1
            if run.attempts < _MAX_ATTEMPTS:
                with self._lock:
                    self._queue.appendleft(run)
            else:
                self._finish(run, (sandbox_failure(f"two fork servers died: {failure}"), b""))

    def _restart(self, lane: _Lane) -> bool:
        try:
            worker = self._start()
            worker.wait_until_ready()
        except SandboxError as error:
            logger.exception("a fork server could not be replaced")
            self._give_up(lane, error)
            return False
        with self._lock:
            is_closed = self._is_closed
            lane.worker = worker
            lane.is_up = not is_closed
            self.num_restarts += 1
        if is_closed:
            worker.stop()
            return False
        self._pump()
        return True

    def _give_up(self, lane: _Lane, error: SandboxError) -> None:
        with self._lock:
            others = any(other.is_up for other in self._lanes if other is not lane)
            left = [] if others else list(self._queue)
            if not others:
                self._is_closed = True
                self._queue.clear()
        self._fail(left, error)

    def _finish(self, run: _Run, finished: Finished) -> None:
        run.release()
        run.future.set_result(finished)

    def _fail(self, runs: list[_Run], error: SandboxError) -> None:
        for run in runs:
            if run.attempts or not run.future.running():
                run.future.set_running_or_notify_cancel()
            run.future.set_exception(error)

    def close(self) -> None:
        """End all servers and what they run; waiting requests fail. Closing twice is allowed."""
        if not self.belongs_here:
            return
        with self._lock:
            self._is_closed = True
            waiting = list(self._queue)
            self._queue.clear()
        for lane in self._lanes:
            lane.worker.hang_up()
        self._fail(waiting, SandboxError("the sandbox was closed before the program ran"))
        for lane in self._lanes:
            if lane.thread is not None and lane.thread is not threading.current_thread():
                lane.thread.join()

    def abandon(self) -> None:
        """In a forked process: let go of the servers, which are the other process's."""
        for lane in self._lanes:
            lane.worker.abandon()


def _collect(run: _Run, report: Report) -> Finished:
    files, limits = run.files, run.request.limits
    assert files is not None
    most = limits.output_bytes + 1
    result = judge(report, limits, files.read(files.stdout, most), files.read(files.stderr, most))
    return result, files.read(files.result, most) if files.result >= 0 else b""


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _abandon_all() -> None:
    for pool in list(_pools):
        pool.abandon()


if hasattr(os, "register_at_fork"):
    # A copy of a server's socket in another process would keep the server alive after us.
    os.register_at_fork(after_in_child=_abandon_all)
