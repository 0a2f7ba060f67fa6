"""Landlock: no file at all, for this process and all its children."""

from __future__ import annotations

import os
import struct

from .kernel import syscall

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_VERSION_FLAG = 1

# Highest right that each version of the interface knows, so that all of them are denied.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_FILE_RIGHTS = (1 << 16) - 1
_TCP_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def version() -> int:
    """Version of the kernel's Landlock interface.

    Raises:
        OSError: The kernel has no Landlock, or it is switched off or hidden by a filter.
    """
    return syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)


def _ruleset(interface: int) -> int:
    rights = _FILE_RIGHTS.get(interface, _ALL_FILE_RIGHTS)
    attributes = struct.pack("=Q", rights)
    if interface >= 4:
        attributes += struct.pack("=Q", _TCP_BIND_AND_CONNECT)
    if interface >= 6:
        attributes += struct.pack("=Q", _ABSTRACT_SOCKETS_AND_SIGNALS)
    return syscall(_CREATE_RULESET, attributes, len(attributes), 0)


def deny_files() -> int:
    """Deny this process and all its children every file, TCP, abstract sockets and signals.

    Needs no_new_privs to be set.

    Returns:
        Version of the interface that was used.

    Raises:
        OSError: The kernel has no Landlock or refused.
    """
    interface = version()
    ruleset = _ruleset(interface)
    try:
        syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return interface
