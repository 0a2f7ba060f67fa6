"""What `socket.socketpair` gives in the jail: two ends of a pipe, as an asyncio loop needs them.

The filter knows no socket. Their buffers are the kernel's memory, which no limit of a process
counts, and they are many times as large as those of a pipe.
"""

from __future__ import annotations

import os
import socket


class PipeEnd:
    """One end of a pipe with the methods of a socket that a loop wakes itself with."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The descriptor, -1 after `close`."""
        return self._descriptor

    def setblocking(self, flag: bool) -> None:
        """Whether `recv` and `send` wait."""
        os.set_blocking(self._descriptor, flag)

    def recv(self, bufsize: int) -> bytes:
        """Up to `bufsize` bytes."""
        return os.read(self._descriptor, bufsize)

    def send(self, data: bytes) -> int:
        """Write what fits, and return how much that was."""
        return os.write(self._descriptor, data)

    def close(self) -> None:
        """Close this end; closing twice is allowed."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _pair(*family_type_protocol: object, **named: object) -> tuple[PipeEnd, PipeEnd]:
    reader, writer = os.pipe()
    return PipeEnd(reader), PipeEnd(writer)


def install() -> None:
    """Put pipes in the place of pairs of sockets."""
    socket.socketpair = _pair  # type: ignore[assignment]
