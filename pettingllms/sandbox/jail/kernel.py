"""System calls that Python does not offer, through ctypes, with errors as `OSError`."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterable
from typing import Any

socketpair = socket.socketpair
"""The real one; programs find another under this name (`pairs.py`)."""

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

_CLOSE_RANGE = 436  # this number and those above are the same on all architectures
_SECCOMP_SET_MODE_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_CAPABILITY_VERSION_3 = 0x20080522


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: int | bytes | None) -> int:
    """The raw call `number`; integers are passed as unsigned 64-bit words."""
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    return _check(_syscall(ctypes.c_long(number), *words), f"system call {number}")


def harmless() -> Any:
    """A function like that behind `syscall`, which does nothing and returns 0."""
    function = _libc.sched_yield
    function.restype = ctypes.c_long
    return function


def prctl(option: int, value: int) -> None:
    """Call prctl with one argument."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl({option})")


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, flags: int) -> None:
    """Enter a namespace."""
    _check(_libc.setns(descriptor, flags), "setns")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount a file system, or bind a path."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _check(result, f"mount {kind or source} on {target}")


def umount(target: str, flags: int) -> None:
    """Unmount a file system."""
    _check(_libc.umount2(os.fsencode(target), flags), f"umount {target}")


def mprotect(address: int, length: int, rights: int) -> None:
    """Change what may be done with memory."""
    result = _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(length), rights)
    _check(result, "mprotect")


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    syscall(_CLOSE_RANGE, first, 0xFFFFFFFF, 0)


def keep_no_capabilities(capset_number: int) -> None:
    """Drop every capability."""
    syscall(capset_number, struct.pack("=II", _CAPABILITY_VERSION_3, 0), bytes(24))


class Filter:
    """A seccomp filter, laid out for the kernel beforehand so that loading it costs a child little.

    Args:
        seccomp_number: Number of seccomp(2).
        code: The BPF program.
    """

    def __init__(self, seccomp_number: int, code: bytes) -> None:
        self._number = seccomp_number
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = struct.pack("@HP", len(code) // 8, ctypes.addressof(self._code))

    def put_in(self, offsets: Iterable[int], value: int) -> None:
        """Write a number into the program."""
        for offset in offsets:
            struct.pack_into("=I", self._code, offset, value)

    def load_asking(self) -> int:
        """Load the filter; from here on it governs this process for good.

        Returns:
            A descriptor on which the filter asks.

        Raises:
            OSError: The kernel refused, for instance because a container's manager listens already.
        """
        try:
            return self.load(_NEW_LISTENER | _WAIT_KILLABLE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Before Linux 5.19 a signal interrupts whoever waits for an answer, who asks again.
            return self.load(_NEW_LISTENER)

    def load(self, flags: int = 0) -> int:
        """Load the filter; returns what seccomp(2) does."""
        return syscall(self._number, _SECCOMP_SET_MODE_FILTER, flags, self._program)
