"""Fork servers behind one queue: who runs what, who got a processor, and what if a server dies."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pettingllms.callers import FairShare
from pettingllms.errors import SandboxError
from pettingllms.sandbox.outcome import ChildReport, ExecutionResult, Status, judge, sandbox_failure
from pettingllms.sandbox.worker import ExecutionRequest, Late, RunFiles, Worker, WorkerDied

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
        """As in `ChildReport`; known from the notice that the run is late."""

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


class ForkServer:
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


LONG_QUEUE = 4
"""With more than this many requests waiting per server, each server gets one ahead of its time, so
that it need not wait for us between two programs. With fewer, a request could be stuck behind a
slow one while another server is idle."""
_CREDIT_S = 5.0
_FORGIVEN = 0.05


class Waiting:
    """The queue of a pool. Not thread-safe: the pool holds its lock.

    A run that ran out of time on the clock although it hardly got a processor says nothing about
    its program, so it is repeated alone, once what runs has come to its end. Runs of that kind take
    at most half of the time while others wait. A program that is too slow alone as well was
    repeated for nothing, at the expense of all others; beyond a credit, its caller then has no more
    runs repeated until a twentieth of the time since makes up for it.
    """

    def __init__(self) -> None:
        self._ordinary: deque[SandboxRun] = deque()
        self._alone: deque[SandboxRun] = deque()
        self._running_alone: SandboxRun | None = None
        self._alone_since_s = 0.0
        self._next_alone_s = 0.0
        self._wasted = FairShare(_FORGIVEN)

    def add(self, run: SandboxRun) -> None:
        """Put a run at the end of the queue."""
        self._ordinary.append(run)

    def add_first(self, run: SandboxRun) -> None:
        """Put a run whose server died at the front of the queue."""
        (self._alone if run.is_alone else self._ordinary).appendleft(run)

    def repeats_alone(self, run: SandboxRun, result: ExecutionResult) -> bool:
        """Take a run that ended back if it has to be repeated alone. Returns whether it has."""
        caller = run.request.caller
        if run.is_alone:
            if result.status in (Status.TIMEOUT, Status.CPU_LIMIT):
                self._wasted.charge(caller, result.wall_s)
            return False
        if not result.starved or self._wasted.owed_s(caller) > _CREDIT_S:
            return False
        run.is_alone = True
        self._alone.append(run)
        return True

    def take(self, servers: list[ForkServer]) -> tuple[ForkServer, SandboxRun] | None:
        """The next run and the server that has a free hand for it, if there are both."""
        up = [server for server in servers if server.is_up]
        if not up or self._running_alone is not None:
            return None
        server = max(up, key=lambda server: server.free)
        if self._alone and (not self._ordinary or time.monotonic() >= self._next_alone_s):
            if any(server.in_flight for server in servers):
                return None  # what runs now comes to its end first, and nothing is added
            self._running_alone = self._alone.popleft()
            self._alone_since_s = time.monotonic()
            return server, self._running_alone
        ahead = len(self._ordinary) > LONG_QUEUE * len(up)
        if not self._ordinary or server.free + ahead <= 0:
            return None
        return server, self._ordinary.popleft()

    def left(self, run: SandboxRun) -> None:
        """A server has no longer to do with a run."""
        if run is self._running_alone:
            self._running_alone = None
            now = time.monotonic()
            self._next_alone_s = now + (now - self._alone_since_s)

    def clear(self) -> list[SandboxRun]:
        """Empty the queue; returns what was in it."""
        runs = [*self._ordinary, *self._alone]
        self._ordinary.clear()
        self._alone.clear()
        return runs


CGROUPS = Path("/sys/fs/cgroup")


def num_processors() -> int:
    """Processors that this process may use: those it may run on, within a container's quota."""
    if hasattr(os, "sched_getaffinity"):
        number = len(os.sched_getaffinity(0))
    else:
        number = os.cpu_count() or 1
    return max(1, math.floor(min(number, _quota())))


def _quota() -> float:
    """Processors' worth of time that a container may use; infinite outside of one."""
    for quota_file, period_file in (
        ("cpu.max", None),
        ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
    ):
        try:
            quota, *period = (CGROUPS / quota_file).read_text().split()
            if period_file is not None:
                period = (CGROUPS / period_file).read_text().split()
        except (OSError, ValueError):
            continue  # the other version of control groups, or none
        if quota not in ("max", "-1"):
            return int(quota) / int(period[0])
    return math.inf


_PROC = Path("/proc")


def runnable_s(process: int) -> float:
    """Seconds for which the busiest thread of a process ran or waited in a run queue.

    Of one thread, and not of all together: many threads that wait for each other a moment are not
    one that waits all the time.

    Args:
        process: Its pidfd. What has ended was not starved: it counts 0.
    """
    with contextlib.suppress(OSError, ValueError):
        fields = dict(
            line.split(":", 1)
            for line in (_PROC / "self" / "fdinfo" / str(process)).read_text().splitlines()
        )
        threads = os.scandir(_PROC / fields["Pid"].strip() / "task")
        return max(map(_runnable_s, map(Path, threads)), default=0.0)
    return 0.0


def _runnable_s(thread: Path) -> float:
    with contextlib.suppress(OSError):
        ran_ns, waited_ns, _ = map(int, (thread / "schedstat").read_text().split())
        return (ran_ns + waited_ns) / 1e9
    return 0.0  # it has ended


def counts_waits() -> bool:
    """Whether the kernel counts how long threads wait for a processor."""
    return _runnable_s(_PROC / "thread-self") > 0


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
        self._servers: list[ForkServer] = []
        self.facts: dict[str, Any] = {}
        self.num_restarts = 0
        self._start_lanes(num_servers, slots)
        _pools.add(self)

    def _start_lanes(self, num_servers: int, slots: int) -> None:
        try:
            for _ in range(num_servers):
                self._servers.append(ForkServer(self._start(), slots))
            for server in self._servers:
                self.facts = server.worker.wait_until_ready()
        except BaseException:
            for server in self._servers:
                server.worker.kill()
            raise
        for index, server in enumerate(self._servers):
            name = f"pettingllms-sandbox-{index}"
            server.thread = threading.Thread(
                target=self._listen, args=(server,), name=name, daemon=True
            )
            server.thread.start()

    @property
    def belongs_here(self) -> bool:
        """Whether this process made the pool (and not the one it was forked from)."""
        return self._pid == os.getpid()

    @property
    def server_pids(self) -> list[int]:
        """Pids of the servers, for whoever watches the machine."""
        return [server.worker.pid for server in self._servers]

    @property
    def window(self) -> int:
        """Number of requests in flight that is useful for one caller; more only queue up."""
        return sum(server.slots + LONG_QUEUE + 2 for server in self._servers)

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
                taken = self._waiting.take(self._servers)
                if taken is None:
                    return
                server, run = taken
                # A cancelled request is dropped here; a repeated one is already running and must
                # not be notified twice.
                if not (run.future.running() or run.future.set_running_or_notify_cancel()):
                    continue
                # Numbers are never reused: a late report of a dead server cannot match a newer run.
                number = self._next_number
                self._next_number += 1
                if not server.in_flight:
                    server.last_event_s = time.monotonic()
                server.in_flight[number] = run
                worker = server.worker
            # Outside of the pool's lock: filling memory files can take long, and the listeners need
            # the lock to conclude other runs.
            self._hand_over(server, worker, number, run)

    def _hand_over(self, server: ForkServer, worker: Worker, number: int, run: SandboxRun) -> None:
        limits = run.request.limits
        with server.lock:
            if server.in_flight.get(number) is not run:
                return  # the server died meanwhile, and the run waits again
            try:
                run.files = RunFiles(run.request)
            except OSError as error:
                with self._lock:
                    del server.in_flight[number]
                    self._waiting.left(run)
                run.finish((sandbox_failure(f"no memory file for the run: {error}"), b""))
                return
            worker.send(number, run.files, limits)

    def _listen(self, server: ForkServer) -> None:
        while True:
            try:
                # The tick only bounds how late a stuck server is noticed; reports wake the thread
                # at once.
                report = server.worker.receive(_TICK_S)
            except WorkerDied as error:
                if not self._replace(server, str(error)):
                    return
                continue
            if report is None:
                with self._lock:
                    is_overdue = server.is_overdue(_GRACE_S)
                if is_overdue and not self._replace(server, "it does not answer"):
                    return
                continue
            if isinstance(report, Late):
                self._end_late(server, report)
                continue
            with self._lock:
                run = server.in_flight.pop(report.number)
                self._waiting.left(run)
                server.last_event_s = time.monotonic()
                # Servers are retired after this many runs, so that no leak in interpreter or kernel
                # adds up. No new runs are sent; it is replaced once it is empty.
                if server.worker.num_runs >= _RUNS_PER_SERVER:
                    server.is_up = False
            self._pump()
            # The server is refilled first: collecting output can wait, an idle processor should
            # not.
            self._conclude(run, report)
            if not server.is_up and not server.in_flight and not self._replace(server, ""):
                return

    def _end_late(self, server: ForkServer, late: Late) -> None:
        if late.process < 0:
            return  # the server does it
        server.in_flight[late.number].runnable_s = runnable_s(late.process)
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

    def _replace(self, server: ForkServer, failure: str) -> bool:
        """Start another process in place of a server's. Returns whether the server continues."""
        # Lock order is always server before pool; `server.lock` keeps `_hand_over` from sending to
        # one that is being replaced.
        with server.lock, self._lock:
            server.is_up = False
            runs = list(server.in_flight.values())
            server.in_flight.clear()
        if failure and not self._is_closed:
            logger.warning("a fork server died and is replaced: %s", failure)
            server.worker.kill()
        else:
            server.worker.stop()
        for run in runs:
            run.release()
        self._requeue(runs, failure)
        return self._restart(server)

    def _requeue(self, runs: list[SandboxRun], failure: str) -> None:
        """Let runs that got no result wait again, once; in a closed pool `_give_up` fails them."""
        for run in runs:
            run.attempts += 1
            with self._lock:
                self._waiting.left(run)
                may_wait = self._is_closed or run.attempts < _MAX_ATTEMPTS
                if may_wait:
                    # To the front: its caller has waited longest.
                    self._waiting.add_first(run)
            if not may_wait:
                run.finish((sandbox_failure(f"it failed twice: {failure}"), b""))

    def _restart(self, server: ForkServer) -> bool:
        failure = SandboxError("the sandbox was closed before the program ended")
        for _ in range(_START_ATTEMPTS):
            if self._is_closed:
                break
            try:
                worker = self._start()
                worker.wait_until_ready()
            except SandboxError as error:
                logger.warning("a fork server could not be started: %s", error)
                failure = error
                time.sleep(0.2)
                continue
            with self._lock:
                server.worker = worker  # before it is asked: `end` hangs up on it after that
                server.is_up = not self._is_closed
                self.num_restarts += 1
            if server.is_up:
                self._pump()
                return True
            worker.stop()
        self._give_up(server, failure)
        return False

    def _give_up(self, server: ForkServer, error: SandboxError) -> None:
        """Do without this server; without the last one, close."""
        with self._lock:
            self._servers.remove(server)
            left = [] if self._servers else self._waiting.clear()
            self._is_closed = self._is_closed or not self._servers
        for run in left:
            run.fail(error)

    def end(self) -> None:
        """End all servers and what they run; their listeners do the rest.

        Takes no lock and waits for nothing: a garbage collection may call it, in a thread that
        holds any lock.
        """
        if self.belongs_here:
            self._is_closed = True
            for server in list(self._servers):
                server.worker.hang_up()

    def close(self) -> None:
        """As `end`, and wait for it; waiting requests fail. Closing twice is allowed."""
        servers = list(self._servers) if self.belongs_here else []
        self.end()
        for server in servers:
            if server.thread is not None and server.thread is not threading.current_thread():
                server.thread.join()

    def abandon(self) -> None:
        """In a forked process: release the servers, which belong to the other process."""
        for server in self._servers:
            server.worker.abandon()
            for run in server.in_flight.values():
                run.release()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _abandon_all() -> None:
    for pool in list(_pools):
        pool.abandon()


if hasattr(os, "register_at_fork"):
    # A copy of a server's socket in another process would keep the server alive after us.
    os.register_at_fork(after_in_child=_abandon_all)
