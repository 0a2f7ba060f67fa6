"""What happens in a forked child: lock up, then run the program. Nothing here returns."""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Iterable
from mmap import mmap
from typing import NamedTuple, NoReturn

from . import kernel, program, protocol

LIMITED = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
"""Limits that differ from run to run. The others are set in the server."""


class Descriptors(NamedTuple):
    """Open files of one run. `result` is -1 unless a function is called."""

    program: int
    """Source of the program."""
    stdin: int
    """What the program reads, or the name and arguments of the function."""
    stdout: int
    """What the program prints."""
    stderr: int
    """What the program writes to its standard error."""
    result: int
    """What the driver of a called function reports; -1 unless one is called."""


class Locks(NamedTuple):
    """What every child of this server locks itself in with."""

    filter: kernel.Filter
    """The filter of system calls, laid out for the kernel."""
    pid_offsets: tuple[int, ...]
    """Where a child's pid goes into its filter."""
    capset_number: int
    """Number of capset(2)."""
    base_memory_bytes: int
    """Address space of the bare interpreter, on top of which limits count."""
    hard_limits: tuple[int, ...]
    """Hard limits of this process, in the order of `LIMITED`."""
    server_pid: int
    """Pid that must still be the parent's; 0 where a pid namespace ends all children anyway."""


def _set_limit(kind: int, value: int, hard: int) -> None:
    value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _place(files: Descriptors) -> None:
    for target, source in enumerate((files.stdin, files.stdout, files.stderr)):
        os.dup2(source, target)
    if files.result >= 0:
        os.dup2(files.result, program.RESULT)


def _hand_over(channel: socket.socket, number: int, descriptor: int) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, protocol.DESCRIPTOR.pack(descriptor))
    channel.sendmsg([protocol.NUMBER.pack(number)], [rights])


def _lock(job: protocol.Job, locks: Locks, channel: socket.socket) -> None:
    os.setsid()
    if locks.server_pid:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        # The server died before the signal was set: no parent is left to end this process.
        if os.getppid() != locks.server_pid:
            os._exit(0)
    else:
        # Here the server needs some, within its own user namespace, to make pid namespaces.
        kernel.keep_no_capabilities(locks.capset_number)
    address_space, cpu_s, file_bytes, open_files = locks.hard_limits
    _set_limit(resource.RLIMIT_AS, locks.base_memory_bytes + job.memory_bytes, address_space)
    # The server enforces the limit exactly; this is for a server that is held up.
    _set_limit(resource.RLIMIT_CPU, int(2 * job.cpu_s) + 2, cpu_s)
    # One byte more than is reported shows that there was more.
    _set_limit(resource.RLIMIT_FSIZE, job.output_bytes + 1, file_bytes)
    locks.filter.put_in(locks.pid_offsets, os.getpid())
    # The descriptor on which the filter asks about each thread goes to the server.
    _hand_over(channel, job.number, locks.filter.load_asking())
    kernel.close_from(program.RESULT + job.calls_function)
    _set_limit(resource.RLIMIT_NOFILE, job.open_files, open_files)


def run(
    job: protocol.Job,
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
        # Read while the file is open; compiled after the locks, for a hostile source could exploit
        # the compiler.
        source = program.read_whole(files.program, job.program_bytes)
        _place(files)
        _lock(job, locks, channel)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the program must not run
        text = f"{type(error).__name__}: {error}".encode()[:500]
        page[1 : 1 + len(text)] = text
        os._exit(70)
    # From here on the server blames the program, not the jail, for how the process ends.
    page[0] = protocol.LOCKED
    try:
        code = program.compile_source(source)
    except MemoryError:
        page[0] = protocol.NO_MEMORY
        os._exit(1)
    if code is None:
        page[0] = protocol.BAD_SYNTAX
        os._exit(1)
    page[0] = protocol.RUNNING
    # Unmapped before the program runs, so that it cannot forge its stage.
    page.close()
    program.execute(code, calls_function=bool(job.calls_function))
