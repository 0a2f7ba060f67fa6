"""The fork server: takes jobs from one socket, forks a locked child for each, reports its end.

It never looks at a program, at its input or at its output; those go from the parent to the child as
open files.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from mmap import mmap
from typing import Any, NoReturn

from . import child, kernel, protocol, setup
from .threads import ThreadCount

_DESCRIPTOR_BYTES = 4
_SHORTEST_WAIT_S = 0.005
_PATIENCE_S = 1.0
"""How long the parent has to look at a child that is late, and to end it, before we end it."""
_COULD_NOT_FORK = -1

_NUM_PROCESSORS = os.cpu_count() or 1


class _Running:
    """One child that has not ended."""

    __slots__ = ("job", "killed_for", "look_s", "page", "pid", "started", "threads")

    def __init__(self, job: protocol.Job, pid: int, started: float, page: mmap) -> None:
        self.job = job
        self.pid = pid
        self.started = started
        # With all processors busy on its threads a run can use up `cpu_s` no sooner than this.
        self.look_s = started + min(job.wall_s, job.cpu_s / _NUM_PROCESSORS)
        self.page = page
        self.killed_for = 0
        self.threads: ThreadCount | None = None
        """None until the child has handed over the descriptor on which its filter asks."""

    @property
    def attention_s(self) -> float:
        """When something is due."""
        return min(self.look_s, self.threads.refuse_s) if self.threads else self.look_s

    def attend(self, now: float) -> bool:
        """Do what is due; returns whether the child has just become late."""
        if self.threads:
            self.threads.refuse_overdue(now)
        return now >= self.look_s and self._look(now)

    def _look(self, now: float) -> bool:
        """Kill the child if it has used up its time, else set when to look again."""
        if self.killed_for:
            pass  # the parent did not end it
        elif now >= self.started + self.job.wall_s:
            self.killed_for = protocol.OUT_OF_TIME
            self.look_s = now + _PATIENCE_S
            return True
        elif (left_s := self.job.cpu_s - self._cpu_s()) <= 0:
            self.killed_for = protocol.OUT_OF_CPU
        else:
            # Looking again when the limit could be reached at the earliest: few looks, exact kills.
            soonest_s = now + max(left_s / _NUM_PROCESSORS, _SHORTEST_WAIT_S)
            self.look_s = min(soonest_s, self.started + self.job.wall_s)
            return False
        self.look_s = float("inf")
        # Not reaped yet, so the number is still this child's.
        os.kill(self.pid, signal.SIGKILL)
        return False

    def _cpu_s(self) -> float:
        # The kernel's name for the processor-time clock of a process; exact, unlike RLIMIT_CPU.
        try:
            return time.clock_gettime(~self.pid << 3 | 2)
        except OSError:
            return 0.0  # it has ended, and is reaped next


class _Server:
    """Forks a child for each job and reports its end."""

    def __init__(
        self,
        parent: socket.socket,
        locks: child.Locks,
        own_pids: int,
        config: dict[str, Any],
    ) -> None:
        self._parent = parent
        self._locks = locks
        self._own_pids = own_pids
        self._exit_number: int = config["numbers"]["exit"]
        self._running: dict[int, _Running] = {}
        self._listeners: dict[int, int] = {}
        """Descriptors of the children's filters, with the handles of the children."""
        self._channel, self._childs_channel = kernel.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        # One shared page for each concurrent run: the child reports its stage there without a
        # system call that its filter would have to allow. The pages are also the free slots.
        self._pages = [mmap(-1, resource.getpagesize()) for _ in range(config["slots"])]
        self._poll = select.poll()
        self._poll.register(self._channel, select.POLLIN)
        self._poll.register(parent, select.POLLIN)

    def serve(self) -> NoReturn:
        while True:
            for descriptor, events in self._poll.poll(self._next_deadline_ms()):
                if descriptor == self._parent.fileno():
                    # With no page left, it is registered for nothing, and only a hang-up comes.
                    self._launch() if self._pages else self._leave()
                elif descriptor == self._channel.fileno():
                    self._take_listener()
                elif descriptor in self._running:
                    self._reap(descriptor)
                elif descriptor in self._listeners:
                    self._count_threads(descriptor, events)
            self._attend()

    def _leave(self) -> NoReturn:
        """End with all children. They would not outlive us, but might never be reaped."""
        for running in self._running.values():
            os.kill(running.pid, signal.SIGKILL)
        for running in self._running.values():
            os.waitpid(running.pid, 0)
        os._exit(0)

    def _next_deadline_ms(self) -> float | None:
        soonest_s = min((r.attention_s for r in self._running.values()), default=float("inf"))
        if soonest_s == float("inf"):
            return None
        return max(0.0, (soonest_s - time.monotonic()) * 1000 + 1)

    def _attend(self) -> None:
        now = time.monotonic()
        for handle, running in self._running.items():
            if now >= running.attention_s and running.attend(now):
                # Nothing in here may read what the kernel counts about a process; the parent may.
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, protocol.DESCRIPTOR.pack(handle))
                self._parent.sendmsg([protocol.NUMBER.pack(running.job.number)], [rights])

    def _take_listener(self) -> None:
        space = socket.CMSG_SPACE(_DESCRIPTOR_BYTES)
        message, ancillary, _, _ = self._channel.recvmsg(
            protocol.NUMBER.size, space, socket.MSG_CMSG_CLOEXEC
        )
        (number,) = protocol.NUMBER.unpack(message)
        (listener,) = protocol.DESCRIPTOR.unpack(ancillary[0][2])
        for handle, running in self._running.items():
            if running.job.number == number:
                job = running.job
                count = ThreadCount(listener, running.pid, job.threads, self._exit_number)
                running.threads = count
                self._listeners[listener] = handle
                self._poll.register(listener, select.POLLIN)
                return
        os.close(listener)  # it was killed before it was finished with its locks

    def _count_threads(self, listener: int, events: int) -> None:
        handle = self._listeners[listener]
        threads = self._running[handle].threads
        if threads is not None and events & select.POLLIN:
            threads.answer(time.monotonic())
        else:
            self._reap(handle)  # all threads are ending, so that nobody is left to ask

    def _receive(self) -> tuple[protocol.Job, child.Descriptors]:
        space = socket.CMSG_SPACE(len(child.Descriptors._fields) * _DESCRIPTOR_BYTES)
        data, ancillary, _, _ = self._parent.recvmsg(
            protocol.JOB.size, space, socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            self._leave()
        job = protocol.Job._make(protocol.JOB.unpack(data))
        received = ancillary[0][2]
        descriptors = struct.unpack(f"={len(received) // _DESCRIPTOR_BYTES}i", received)
        files = descriptors if job.calls_function else (*descriptors, -1)
        return job, child.Descriptors._make(files)

    def _launch(self) -> None:
        job, files = self._receive()
        page = self._pages.pop()
        # The page was used by an earlier run; its stage and reason must not show in this one.
        page[:512] = bytes(512)
        started = time.monotonic()
        try:
            pid = self._fork()
        except OSError as error:
            page[1:100] = str(error).encode()[:99].ljust(99, b"\0")
            self._report(job, _COULD_NOT_FORK, started, None, page)
            pid = -1
        if pid == 0:
            # In the child from here on: `run` never returns.
            others = [*self._pages, *(running.page for running in self._running.values())]
            child.run(job, files, self._locks, self._childs_channel, page, others)
        for descriptor in files:
            if descriptor >= 0:
                os.close(descriptor)
        if pid > 0:
            # A pidfd becomes readable at the end of the child and cannot be confused with a later
            # process of the same number.
            handle = os.pidfd_open(pid)
            self._running[handle] = _Running(job, pid, started, page)
            self._poll.register(handle, select.POLLIN)
        self._listen()

    def _fork(self) -> int:
        if self._own_pids < 0:
            return os.fork()
        # Only the next child enters the new namespace, as its pid 1; the server then returns to its
        # own namespace for the following one.
        kernel.unshare(kernel.CLONE_NEWPID)
        pid = os.fork()
        if pid:
            try:
                kernel.setns(self._own_pids, kernel.CLONE_NEWPID)
            except OSError:
                os._exit(1)  # the next child would be made in a namespace of this one
        return pid

    def _listen(self) -> None:
        """Take jobs only while a child may be added; a hang-up is noticed in any case."""
        self._poll.modify(self._parent, select.POLLIN if self._pages else 0)

    def _reap(self, handle: int) -> None:
        running = self._running.pop(handle)
        self._poll.unregister(handle)
        os.close(handle)
        if running.threads is not None:
            listener = running.threads.listener
            del self._listeners[listener]
            self._poll.unregister(listener)
            os.close(listener)
        _, status, usage = os.wait4(running.pid, 0)
        killed_for = running.killed_for
        self._report(running.job, status, running.started, usage, running.page, killed_for)
        self._listen()

    def _report(
        self,
        job: protocol.Job,
        status: int,
        started: float,
        usage: resource.struct_rusage | None,
        page: mmap,
        killed_for: int = 0,
    ) -> None:
        cpu_s = usage.ru_utime + usage.ru_stime if usage else 0.0
        rss = usage.ru_maxrss * 1024 if usage else 0
        wall_s = time.monotonic() - started
        message = protocol.RESULT.pack(job.number, status, wall_s, cpu_s, rss, page[0], killed_for)
        # Only a child that is still setting up is believed: afterwards the program could have
        # written here.
        reason = bytes(page[1:512]).rstrip(b"\0") if page[0] == protocol.SETTING_UP else b""
        self._pages.append(page)
        self._parent.send(message + reason)


def main(descriptor: int) -> None:
    """Serve the parent at the other end of the socket until it hangs up.

    Args:
        descriptor: A connected SOCK_SEQPACKET socket. The first message is the configuration, as
            JSON, with the library's memory file; each later one a job with its open files.
    """
    os.umask(0o022)
    parent = socket.socket(fileno=descriptor)
    message, (library,), _, _ = socket.recv_fds(parent, 1 << 17, 1)
    config = json.loads(message)
    locks, own_pids, facts = setup.set_up(config, library, parent)
    facts["python"] = sys.version.split()[0]
    parent.send(json.dumps(facts).encode())
    _Server(parent, locks, own_pids, config).serve()
