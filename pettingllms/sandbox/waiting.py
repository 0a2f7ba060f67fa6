"""Requests that wait for a server: whose turn it is, and what must run alone."""

from __future__ import annotations

import time
from collections import deque

from pettingllms.callers import Debts
from pettingllms.sandbox.lane import Lane, SandboxRun
from pettingllms.sandbox.outcome import ExecutionResult, Status

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
        self._wasted = Debts(_FORGIVEN)

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

    def take(self, lanes: list[Lane]) -> tuple[Lane, SandboxRun] | None:
        """The next run and the server that has a free hand for it, if there are both."""
        up = [lane for lane in lanes if lane.is_up]
        if not up or self._running_alone is not None:
            return None
        lane = max(up, key=lambda lane: lane.free)
        if self._alone and (not self._ordinary or time.monotonic() >= self._next_alone_s):
            if any(lane.in_flight for lane in lanes):
                return None  # what runs now comes to its end first, and nothing is added
            self._running_alone = self._alone.popleft()
            self._alone_since_s = time.monotonic()
            return lane, self._running_alone
        ahead = len(self._ordinary) > LONG_QUEUE * len(up)
        if not self._ordinary or lane.free + ahead <= 0:
            return None
        return lane, self._ordinary.popleft()

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
