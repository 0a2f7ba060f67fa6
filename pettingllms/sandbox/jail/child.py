"""What happens in a forked child: lock up, then run the program. Nothing here returns."""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterable
from mmap import mmap
from typing import NamedTuple, NoReturn

from . import kernel, program

NUMBER = struct.Struct("=Q")
DESCRIPTOR = struct.Struct("=i")
SETTING_UP, LOCKED, RUNNING, BAD_SYNTAX, NO_MEMORY = range(5)
"""Stages of a child. It writes the stage into a page that is unmapped before the program runs."""


LIMITED = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
"""What differs from run to run. Other limits are set in the server."""


class Job(NamedTuple):
    """Limits of one run, as they travel from the parent."""

    number: int
    wall_s: float
    cpu_s: float
    memory_bytes: int
    output_bytes: int
    open_files: int
    threads: int


class Descriptors(NamedTuple):
    """Open files of one run. `result` is -1 unless a function is called."""

    program: int
    stdin: int
    stdout: int
    stderr: int
    result: int


class Locks(NamedTuple):
    """What every child of this server locks itself in with."""

    filter_code: bytes
    pid_offsets: tuple[int, ...]
    thread_filter_code: bytes
    seccomp_number: int
    capset_number: int
    base_memory_bytes: int
    hard_limits: tuple[int, ...]
    """Of `LIMITED`, beyond which a process of ours may not go."""
    server_pid: int
    """Pid that must still be the parent's; 0 where a pid namespace ends all children anyway."""


def _set_limits(job: Job, locks: Locks) -> None:
    for limit, hard, value in zip(
        LIMITED,
        locks.hard_limits,
        (
            locks.base_memory_bytes + job.memory_bytes,
            # The server enforces the limit exactly; this is for a server that is held up.
            int(2 * job.cpu_s) + 2,
            # One byte more than is reported shows that there was more.
            job.output_bytes + 1,
            job.open_files,
        ),
        strict=True,
    ):
        value = min(value, hard)
        resource.setrlimit(limit, (value, value))


def _place(files: Descriptors) -> None:
    for target, source in enumerate((files.stdin, files.stdout, files.stderr)):
        os.dup2(source, target)
    if files.result >= 0:
        os.dup2(files.result, program.RESULT)
    kernel.close_from(program.RESULT + (files.result >= 0))


def _let_server_count_threads(job: Job, locks: Locks, channel: socket.socket) -> None:
    """Hand the server the descriptor on which a filter will ask about each thread."""
    listener = kernel.load_asking_filter(locks.seccomp_number, locks.thread_filter_code)
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, DESCRIPTOR.pack(listener))
    channel.sendmsg([NUMBER.pack(job.number)], [rights])


def _lock(job: Job, locks: Locks) -> None:
    os.setsid()
    if locks.server_pid:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        # The server died before the signal was set: no parent is left to end this process.
        if os.getppid() != locks.server_pid:
            os._exit(0)
    else:
        # Here the server needs some, within its own user namespace, to make pid namespaces.
        kernel.keep_no_capabilities(locks.capset_number)
    _set_limits(job, locks)
    code = bytearray(locks.filter_code)
    for offset in locks.pid_offsets:
        code[offset : offset + 4] = os.getpid().to_bytes(4, sys.byteorder)
    if code:
        kernel.load_filter(locks.seccomp_number, bytes(code))


def run(
    job: Job,
    files: Descriptors,
    locks: Locks,
    channel: socket.socket,
    page: mmap,
    other_pages: Iterable[mmap],
) -> NoReturn:
    """Lock this process up and run the program in it.

    Args:
        job: The limits.
        files: Where program and input come from and where output goes.
        locks: What to lock up with.
        channel: Takes one descriptor and the job's number to the server.
        page: Shared with the server: byte 0 is the stage, the rest says why locking up failed.
        other_pages: The pages of other children, in which nothing may be changed from here.
    """
    try:
        # First of all: nothing in this process may reach another run's page.
        for other in other_pages:
            other.close()
        # Read before `_place` closes the file; compiled after the locks, for a hostile source could
        # exploit the compiler.
        source = program.read_whole(files.program)
        # Before `_place`, which closes the channel to the server.
        _let_server_count_threads(job, locks, channel)
        _place(files)
        _lock(job, locks)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the program must not run
        text = f"{type(error).__name__}: {error}".encode()[:500]
        page[1 : 1 + len(text)] = text
        os._exit(70)
    # From here on the server blames the program, not the jail, for how the process ends.
    page[0] = LOCKED
    try:
        code = program.compile_source(source)
    except MemoryError:
        page[0] = NO_MEMORY
        os._exit(1)
    if code is None:
        page[0] = BAD_SYNTAX
        os._exit(1)
    page[0] = RUNNING
    # Unmapped before the program runs, so that it cannot forge its stage.
    page.close()
    program.execute(code, calls_function=files.result >= 0)
