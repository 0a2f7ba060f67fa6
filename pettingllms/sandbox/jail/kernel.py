"""System calls that Python does not offer, through ctypes, with errors as `OSError`."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

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


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    syscall(_CLOSE_RANGE, first, 0xFFFFFFFF, 0)


def keep_no_capabilities(capset_number: int) -> None:
    """Drop every capability."""
    syscall(capset_number, struct.pack("=II", _CAPABILITY_VERSION_3, 0), bytes(24))


def load_filter(seccomp_number: int, code: bytes, flags: int = 0) -> int:
    """Load a seccomp filter; from here on it governs this process until it ends.

    Returns:
        A descriptor on which the filter asks, if `flags` say so.
    """
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    return syscall(seccomp_number, _SECCOMP_SET_MODE_FILTER, flags, program)


def load_asking_filter(seccomp_number: int, code: bytes) -> int:
    """Load a filter that asks; returns the descriptor on which it does.

    Raises:
        OSError: The kernel refused, for instance because a container's manager already listens.
    """
    try:
        return load_filter(seccomp_number, code, _NEW_LISTENER | _WAIT_KILLABLE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Before Linux 5.19 a signal can interrupt whoever waits for an answer, who then asks again.
        return load_filter(seccomp_number, code, _NEW_LISTENER)
