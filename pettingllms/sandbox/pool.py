"""Fork servers behind one queue: who runs what, and what happens when a server dies."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pettingllms.errors import SandboxError
from pettingllms.sandbox.lane import Finished, Lane, SandboxRun
from pettingllms.sandbox.outcome import Status, sandbox_failure
from pettingllms.sandbox.starvation import runnable_s
from pettingllms.sandbox.verdict import ChildReport
from pettingllms.sandbox.waiting import LONG_QUEUE, Waiting
from pettingllms.sandbox.worker import ExecutionRequest, Late, RunFiles, Worker, WorkerDied

logger = logging.getLogger(__name__)

_MAX_ATTEMPTS = 2
_TICK_S = 5.0
_GRACE_S = 20.0
"""How much longer than its wall limit a run may take to be reported on an overloaded machine."""
_START_ATTEMPTS = 3
_RUNS_PER_SERVER = 20_000


class Pool:
    """Runs requests on fork servers, each at most once unless its server died.

    Args:
        start: Starts one server; called again for each replacement.
        num_servers: How many servers there are.
        slots: How many programs one server runs at a time.

    Raises:
        SandboxError: A server could not be started.
    """

    def __init__(self, start: Callable[[], Worker], num_servers: int, slots: int) -> None:
        self._start = start
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting = Waiting()
        self._next_number = 0
        self._is_closed = False
        self._lanes: list[Lane] = []
        self.facts: dict[str, Any] = {}
        self.num_restarts = 0
        self._start_lanes(num_servers, slots)
        _pools.add(self)

    def _start_lanes(self, num_servers: int, slots: int) -> None:
        try:
            for _ in range(num_servers):
                self._lanes.append(Lane(self._start(), slots))
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
    def server_pids(self) -> list[int]:
        """Pids of the servers, for whoever watches the machine."""
        return [lane.worker.pid for lane in self._lanes]

    @property
    def window(self) -> int:
        """Number of requests in flight that is useful for one caller; more only queue up."""
        return sum(lane.slots + LONG_QUEUE + 2 for lane in self._lanes)

    def submit(self, request: ExecutionRequest) -> Future[Finished]:
        """Queue a request.

        Raises:
            SandboxError: The pool is closed, or no server could be restarted.
        """
        run = SandboxRun(request)
        with self._lock:
            if self._is_closed:
                raise SandboxError("this sandbox is closed. Make a new one.")
            self._waiting.add(run)
        self._pump()
        return run.future

    def _pump(self) -> None:
        """Give waiting requests to servers with free hands."""
        while True:
            with self._lock:
                taken = self._waiting.take(self._lanes)
                if taken is None:
                    return
                lane, run = taken
                # A cancelled request is dropped here; a repeated one is already running and must
                # not be notified twice.
                if not (run.future.running() or run.future.set_running_or_notify_cancel()):
                    continue
                # Numbers are never reused: a late report of a dead server cannot match a newer run.
                number = self._next_number
                self._next_number += 1
                if not lane.in_flight:
                    lane.last_event_s = time.monotonic()
                lane.in_flight[number] = run
                worker = lane.worker
            # Outside of the pool's lock: filling memory files can take long, and the listeners need
            # the lock to conclude other runs.
            self._hand_over(lane, worker, number, run)

    def _hand_over(self, lane: Lane, worker: Worker, number: int, run: SandboxRun) -> None:
        limits = run.request.limits
        with lane.lock:
            if lane.in_flight.get(number) is not run:
                return  # the server died meanwhile, and the run waits again
            try:
                run.files = RunFiles(run.request)
            except OSError as error:
                with self._lock:
                    del lane.in_flight[number]
                    self._waiting.left(run)
                run.finish((sandbox_failure(f"no memory file for the run: {error}"), b""))
                return
            worker.send(number, run.files, limits)

    def _listen(self, lane: Lane) -> None:
        while True:
            try:
                # The tick only bounds how late a stuck server is noticed; reports wake the thread
                # at once.
                report = lane.worker.receive(_TICK_S)
            except WorkerDied as error:
                if not self._replace(lane, str(error)):
                    return
                continue
            if report is None:
                with self._lock:
                    is_overdue = lane.is_overdue(_GRACE_S)
                if is_overdue and not self._replace(lane, "it does not answer"):
                    return
                continue
            if isinstance(report, Late):
                self._end_late(lane, report)
                continue
            with self._lock:
                run = lane.in_flight.pop(report.number)
                self._waiting.left(run)
                lane.last_event_s = time.monotonic()
                # Servers are retired after this many runs, so that no leak in interpreter or kernel
                # adds up. No new runs are sent; it is replaced once it is empty.
                if lane.worker.num_runs >= _RUNS_PER_SERVER:
                    lane.is_up = False
            self._pump()
            # The server is refilled first: collecting output can wait, an idle processor should
            # not.
            self._conclude(run, report)
            if not lane.is_up and not lane.in_flight and not self._replace(lane, ""):
                return

    def _end_late(self, lane: Lane, late: Late) -> None:
        lane.in_flight[late.number].runnable_s = runnable_s(late.process)
        # Where it may not be done from here, the server does it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(late.process, signal.SIGKILL)
        os.close(late.process)

    def _conclude(self, run: SandboxRun, report: ChildReport) -> None:
        finished = run.collect(report)
        if finished[0].status is Status.SANDBOX_ERROR and run.attempts + 1 < _MAX_ATTEMPTS:
            run.release()
            self._requeue([run], finished[0].stderr)
            self._pump()
            return
        with self._lock:
            is_repeated = not self._is_closed and self._waiting.repeats_alone(run, finished[0])
        if is_repeated:
            run.release()
            self._pump()
        else:
            run.finish(finished)

    def _replace(self, lane: Lane, failure: str) -> bool:
        """Start a new server for a lane. Returns whether the lane continues."""
        # Lock order is always lane before pool; `lane.lock` keeps `_hand_over` from sending to a
        # server that is being replaced.
        with lane.lock, self._lock:
            lane.is_up = False
            runs = list(lane.in_flight.values())
            lane.in_flight.clear()
            is_closed = self._is_closed
        if failure and not is_closed:
            logger.warning("a fork server died and is replaced: %s", failure)
            lane.worker.kill()
        else:
            lane.worker.stop()
        for run in runs:
            run.release()
        self._requeue(runs, failure)
        return self._restart(lane)

    def _requeue(self, runs: list[SandboxRun], failure: str) -> None:
        """Let runs that got no result wait again, once."""
        for run in runs:
            run.attempts += 1
            with self._lock:
                self._waiting.left(run)
                is_closed = self._is_closed
                may_wait = not is_closed and run.attempts < _MAX_ATTEMPTS
                if may_wait:
                    # To the front: its caller has waited longest.
                    self._waiting.add_first(run)
            if is_closed:
                run.fail(SandboxError("the sandbox was closed while the program ran"))
            elif not may_wait:
                run.finish((sandbox_failure(f"it failed twice: {failure}"), b""))

    def _restart(self, lane: Lane) -> bool:
        for attempt in range(_START_ATTEMPTS):
            with self._lock:
                if self._is_closed:
                    return False
            try:
                worker = self._start()
                worker.wait_until_ready()
            except SandboxError as error:
                logger.warning("a fork server could not be started: %s", error)
                if attempt + 1 == _START_ATTEMPTS:
                    self._give_up(lane, error)
                time.sleep(0.2)
            else:
                return self._resume(lane, worker)
        return False

    def _resume(self, lane: Lane, worker: Worker) -> bool:
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

    def _give_up(self, lane: Lane, error: SandboxError) -> None:
        """Do without this lane; without the last one, close."""
        with self._lock:
            self._lanes.remove(lane)
            left = [] if self._lanes else self._waiting.clear()
            self._is_closed = self._is_closed or not self._lanes
        for run in left:
            run.fail(error)

    def close(self) -> None:
        """End all servers and what they run; waiting requests fail. Closing twice is allowed."""
        if not self.belongs_here:
            return
        with self._lock:
            self._is_closed = True
            waiting = self._waiting.clear()
            lanes = list(self._lanes)
        for lane in lanes:
            # Listeners see `WorkerDied`, find the pool closed, and end; `join` below waits for
            # them.
            lane.worker.hang_up()
        for run in waiting:
            run.fail(SandboxError("the sandbox was closed before the program ran"))
        for lane in lanes:
            if lane.thread is not None and lane.thread is not threading.current_thread():
                lane.thread.join()

    def abandon(self) -> None:
        """In a forked process: release the servers, which belong to the other process."""
        for lane in self._lanes:
            lane.worker.abandon()
            for run in lane.in_flight.values():
                run.release()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _abandon_all() -> None:
    for pool in list(_pools):
        pool.abandon()


if hasattr(os, "register_at_fork"):
    # A copy of a server's socket in another process would keep the server alive after us.
    os.register_at_fork(after_in_child=_abandon_all)
