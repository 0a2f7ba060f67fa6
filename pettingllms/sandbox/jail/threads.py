"""The threads of one run: how many there may be, and what they are worth to the scheduler.

The kernel's own limit (RLIMIT_NPROC) counts per user, so that one run could use up the threads of
all others. Here the filter stops each call that makes or ends a thread and asks the server, which
counts. It asks only about calls whose arguments it allows, and those are in registers, which nobody
can change while the server thinks; so the server need not look at them.

The scheduler divides a processor among threads, so a run with 33 busy threads would get 33 times
as much of it as its neighbour with one. Each further thread makes all threads of its run nicer, so
that together they weigh as much as a single one. (An unprivileged process cannot become less nice,
so a run stays as nice as its maximum number of threads made it.)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import struct
from collections import deque

_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND
_CONTINUE = 1
_NOTIFICATION = struct.Struct("=QIIi60x")  # identifier, thread, flags, number of the call
_ANSWER = struct.Struct("=QqiI")  # identifier, value, error, flags
_PATIENCE_S = 0.2
"""How long a run at its limit waits for a thread that is about to end, before it is refused one:
Python counts a thread as ended a little before the kernel does."""
_WEIGHT_PER_LEVEL = 1.25
_MAX_NICE = 19


def niceness(num_threads: int) -> int:
    """The level at which so many threads weigh at most as much as one at level 0."""
    return min(_MAX_NICE, math.ceil(math.log(num_threads) / math.log(_WEIGHT_PER_LEVEL)))


class ThreadCount:
    """Answers the questions of one run.

    Args:
        listener: Descriptor on which the filter asks.
        pid: The run, which leads a process group of its own.
        most: Threads that there may be besides the first.
        exit_number: Number of exit(2), which ends a thread; the other call that asks makes one.
    """

    def __init__(self, listener: int, pid: int, most: int, exit_number: int) -> None:
        self.listener = listener
        self._pid = pid
        self._most = most
        self._exit_number = exit_number
        self._others = 0
        self._base = self._nice = os.getpriority(os.PRIO_PROCESS, 0)  # not 0 under `nice`
        self._waiting: deque[tuple[int, float]] = deque()

    @property
    def refuse_s(self) -> float:
        """When `refuse_overdue` has something to do."""
        return self._waiting[0][1] if self._waiting else math.inf

    def answer(self, now: float) -> None:
        """Answer the question that was announced on the listener."""
        question = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, question, True)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return  # whoever asked was killed or interrupted meanwhile
            raise
        identifier, _, _, number = _NOTIFICATION.unpack(question)
        if number != self._exit_number:
            self._waiting.append((identifier, now + _PATIENCE_S))
        elif self._tell(identifier, _CONTINUE):
            self._others -= 1
        while self._waiting and self._others < self._most:
            self._admit(self._waiting.popleft()[0])

    def _admit(self, identifier: int) -> None:
        self._others += 1
        nice = min(_MAX_NICE, self._base + niceness(self._others + 1))
        if nice > self._nice:
            self._nice = nice
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PGRP, self._pid, nice)  # all its threads, and those to come
        if not self._tell(identifier, _CONTINUE):
            self._others -= 1

    def refuse_overdue(self, now: float) -> None:
        """Refuse threads for which there was no room in time."""
        while self.refuse_s <= now:
            self._tell(self._waiting.popleft()[0], 0)

    def _tell(self, identifier: int, flags: int) -> bool:
        """Answer one question. Returns whether a caller was still waiting for it."""
        error = 0 if flags else -errno.EAGAIN
        try:
            fcntl.ioctl(self.listener, _SEND, _ANSWER.pack(identifier, 0, error, flags))
        except OSError as failure:
            if failure.errno != errno.ENOENT:
                raise
            return False
        return True
