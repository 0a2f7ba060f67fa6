"""One verifier process, as its owner sees it."""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

from pettingllms.errors import MissingDependency

_WORKER = Path(__file__).with_name("verifier_worker.py")
_START_TIMEOUT_S = 120.0
_GRACE_S = 5
"""Seconds after the time limit after which a comparison ends by itself, should nobody end it."""
_WALL_FACTOR, _WALL_EXTRA_S = 5, 5
"""Seconds on the clock that a comparison may take: the first number per second of processor
time, plus the second. Only an overloaded machine or a stopped process takes that long."""


class VerifierProcess:
    """A verifier process and the pipes to it; it stays warm when a comparison kills its child.

    Args:
        timeout_s: Maximum seconds of processor time of a comparison.

    Raises:
        MissingDependency: It does not start.
    """

    def __init__(self, timeout_s: float) -> None:
        self._wall_s = _WALL_FACTOR * timeout_s + _WALL_EXTRA_S
        self._popen = subprocess.Popen(
            [sys.executable, str(_WORKER), str(math.ceil(self._wall_s) + _GRACE_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C in the terminal must not kill the workers of a run that wants to end cleanly;
            # and the process and its child are ended together.
            start_new_session=True,
        )
        self._finalizer = weakref.finalize(self, _end, self._popen, os.getpid())
        self._buffer = b""
        if self._read_line(_START_TIMEOUT_S) is None:
            self.end()
            raise MissingDependency("starting a verifier process", "math-verify", "math")

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._popen.poll() is None

    def ask(
        self, request: tuple[str, str, float], cpu_limit_s: float
    ) -> tuple[str, str] | signal.Signals | None:
        """Return outcome and detail, what ended the comparison, or None when the process hung."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps([cpu_limit_s, *request]).encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._read_line(self._wall_s)
        if line is None:
            return None
        reply = json.loads(line)
        return signal.Signals(reply) if isinstance(reply, int) else tuple(reply)

    def _read_line(self, timeout_s: float) -> bytes | None:
        assert self._popen.stdout is not None
        deadline_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._popen.stdout, selectors.EVENT_READ)
            # A reply may come in pieces, and the deadline holds for all of them.
            while b"\n" not in self._buffer:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not selector.select(left_s):
                    return None
                piece = os.read(self._popen.stdout.fileno(), 1 << 16)
                if not piece:
                    return None
                self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def end(self) -> None:
        """End the process and its child."""
        self._finalizer()


def _end(process: subprocess.Popen[bytes], owner_pid: int) -> None:
    if owner_pid == os.getpid():  # a forked copy must not end its parent's processes
        if process.poll() is None:  # else the number may be another's
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
