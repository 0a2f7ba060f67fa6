"""Fewer mappings for the kernel to copy at each fork and to remove at the end of each run.

A shared library is mapped in five pieces with rights of their own. There are dozens of them, and a
run that lasts two milliseconds spends a tenth of its time on these pieces. Neighbours with equal
rights become one mapping: here the constants beside the code become executable, and tables that
were read-only once filled become writable again. No lock of the jail relies on these rights (a
program may change them itself), and nothing becomes writable and executable at once.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from . import kernel

_READ, _WRITE, _EXECUTE = 1, 2, 4


class _Mapping(NamedTuple):
    """A piece of a file in the memory of this process."""

    first: int
    """First address."""
    end: int
    """First address behind it."""
    rights: str
    """As the kernel shows them: `r-xp`."""
    file: str
    """Path of the file; empty for memory without one."""


def _of_files() -> list[_Mapping]:
    found: list[_Mapping] = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, rights, _, _, _, *file = line.split(maxsplit=5)
            first, end = (int(address, 16) for address in span.split("-"))
            found.append(_Mapping(first, end, rights, file[0].strip() if file else ""))
    return [mapping for mapping in found if mapping.file.startswith("/")]


def merge() -> None:
    """Give the read-only pieces of each library the rights of a neighbour."""
    pieces = _of_files()
    code = {piece.file for piece in pieces if piece.rights == "r-xp"}
    data = {(piece.first, piece.file) for piece in pieces if piece.rights == "rw-p"}
    for first, end, rights, file in pieces:
        if rights == "r--p" and file in code:
            other = _WRITE if (end, file) in data else _EXECUTE
            # Where a machine's rules forbid it, that piece stays as it is.
            with contextlib.suppress(OSError):
                kernel.mprotect(first, end - first, _READ | other)
