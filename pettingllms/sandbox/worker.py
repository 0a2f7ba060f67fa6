"""The parent's side of one fork server: starts it, sends jobs, receives their results."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms.errors import SandboxError
from pettingllms.sandbox.jail.protocol import JOB, NUMBER, RESULT
from pettingllms.sandbox.library import seal
from pettingllms.sandbox.outcome import ChildReport, Limits

_SCRIPT = Path(__file__).parent / "jail" / "__main__.py"
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 5.0
_RESOLVE_AT_ONCE = "LD_BIND_NOW"  # taken away by `jail.__main__`
# The interpreter's own libraries may be found through these, and through nothing else.
_LOADER_VARIABLES = ("LD_LIBRARY_PATH",)


class ExecutionRequest(NamedTuple):
    """One program and its input."""

    code: bytes
    stdin: bytes
    """What the program reads; where a function is called, JSON of its name and arguments."""
    limits: Limits
    calls_function: bool = False
    """Whether a function of the program is called, instead of the program run."""
    caller: int = 0
    """Who asks (`pettingllms.callers`)."""


class RunFiles:
    """The memory files through which one run is fed and heard."""

    def __init__(self, request: ExecutionRequest) -> None:
        self.descriptors: list[int] = []
        """What the child gets, in the order of the protocol."""
        try:
            self.program = self._sealed(request.code)
            self.program_bytes = len(request.code)
            self.stdin = self._sealed(request.stdin)
            self.stdout = self._new()
            self.stderr = self._new()
            self.result = self._new() if request.calls_function else -1
        except OSError:
            self.close()
            raise

    def _new(self) -> int:
        descriptor = os.memfd_create("run", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.descriptors.append(descriptor)
        return descriptor

    def _sealed(self, data: bytes) -> int:
        descriptor = self._new()
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        seal(descriptor)
        return descriptor

    def read(self, descriptor: int, most: int) -> bytes:
        """Up to `most` bytes from the beginning of one of the files."""
        size = min(os.fstat(descriptor).st_size, most)
        data = b""
        while len(data) < size:
            part = os.pread(descriptor, size - len(data), len(data))
            if not part:
                break
            data += part
        return data

    def close(self) -> None:
        """Release the files; the kernel frees them with the child's end."""
        while self.descriptors:
            os.close(self.descriptors.pop())


class Late(NamedTuple):
    """The notice that a run has used up its time on the clock."""

    number: int
    """Number of the run, as `Worker.send` gave it."""
    process: int
    """A pidfd. Whoever receives it ends the process and closes it; else the server does. -1: there
    was no free descriptor for it."""


class WorkerDied(Exception):
    """The fork server hung up or died."""


class Worker:
    """A running fork server.

    Args:
        config: What `jail.server` takes as its first message.
        library: Memory file with what programs can import (`library.archive`).

    Raises:
        SandboxError: The server did not come up; the message has its own last words.
    """

    def __init__(self, config: dict[str, Any], library: int) -> None:
        self._opened = contextlib.ExitStack()
        self.num_runs = 0
        # No user site, no site module, no script folder on the path, no byte code: the server must
        # not import anything of the host's configuration.
        flags = ("-s", "-S", "-P", "-B", "-X", "utf8")
        try:
            # SEQPACKET keeps message boundaries, so that a job and its descriptors arrive together.
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket = self._opened.enter_context(ours)
            with theirs:
                self._log = os.memfd_create("log", os.MFD_CLOEXEC)
                self._opened.callback(os.close, self._log)
                self._process = subprocess.Popen(
                    [sys.executable, *flags, str(_SCRIPT), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._log,
                    # Symbols are resolved now and not in each child anew.
                    env={**bare_environment(), _RESOLVE_AT_ONCE: "1"},
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                    # A Ctrl-C for the trainer must not kill runs before it has decided how to stop.
                    start_new_session=True,
                )
            socket.send_fds(ours, [json.dumps(config).encode()], [library])
        except OSError as error:
            self._opened.close()
            raise SandboxError(f"the fork server could not be started: {error}") from error

    def wait_until_ready(self) -> dict[str, Any]:
        """Wait until the server is locked up; what it says about its locks.

        Raises:
            SandboxError: It died or did not come up in time; it is gone then.
        """
        try:
            message, _ = self._receive(_START_TIMEOUT_S)
        except WorkerDied as error:
            words = self._last_words()
            self.stop()
            raise SandboxError(f"the fork server did not come up: {words or error}") from error
        if not message:
            self.kill()
            raise SandboxError(f"the fork server did not come up within {_START_TIMEOUT_S} s")
        return json.loads(message)

    @property
    def pid(self) -> int:
        """Pid of the server, or of its outer half where it has a pid namespace."""
        return self._process.pid

    def send(self, number: int, files: RunFiles, limits: Limits) -> None:
        """Hand over a job. A dead server is noticed when its answer is awaited."""
        message = JOB.pack(
            number,
            files.program_bytes,
            limits.wall_s,
            limits.cpu_s,
            limits.memory_bytes,
            limits.output_bytes,
            limits.max_open_files,
            limits.max_processes,
            files.result >= 0,
        )
        # Failing here as well would report one death twice; `receive` sees it and the run is
        # requeued.
        with contextlib.suppress(OSError):
            socket.send_fds(self._socket, [message], files.descriptors)

    def receive(self, timeout_s: float) -> ChildReport | Late | None:
        """The next job that ended or is late, or None if none is within `timeout_s`.

        Raises:
            WorkerDied: The server is gone.
        """
        data, descriptors = self._receive(timeout_s)
        if not data:
            return None
        if len(data) == NUMBER.size:
            # Where this process has no descriptor free, the kernel keeps what was sent.
            return Late(*NUMBER.unpack(data), process=descriptors[0] if descriptors else -1)
        self.num_runs += 1
        reason = data[RESULT.size :].decode("utf-8", "replace")
        return ChildReport._make((*RESULT.unpack(data[: RESULT.size]), reason, 0.0))

    def _receive(self, timeout_s: float) -> tuple[bytes, list[int]]:
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return b"", []
            data, descriptors, _, _ = socket.recv_fds(
                self._socket, 1 << 16, 1, socket.MSG_CMSG_CLOEXEC
            )
        except (OSError, ValueError) as error:
            raise WorkerDied(str(error)) from error
        if not data:
            raise WorkerDied("the fork server hung up")
        return data, descriptors

    def hang_up(self) -> None:
        """End the conversation from any thread; whoever waits for an answer sees `WorkerDied`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """End the server and everything it runs, and wait until it is gone."""
        self.hang_up()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._opened.close()

    def kill(self) -> None:
        """As `stop`, without asking."""
        self._process.kill()
        self.stop()

    def abandon(self) -> None:
        """Forget a server that belongs to the process we were forked from."""
        # `Popen` would otherwise warn about, and try to reap, a child of another process.
        self._process.returncode = 0
        self._opened.close()

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT_S)
        text = os.pread(self._log, 1 << 16, 0).decode("utf-8", "replace").strip()
        return text.rpartition("\n")[2]


def bare_environment() -> dict[str, str]:
    """Everything that a jailed interpreter sees of the environment."""
    kept = {name: os.environ[name] for name in _LOADER_VARIABLES if name in os.environ}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        # One heap for all threads: the C library reserves 64 MiB of addresses for each further one,
        # so that a handful of threads would use up a program's memory limit.
        "MALLOC_ARENA_MAX": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
        "PYTHONHASHSEED": "0",
        "TZ": "UTC",
    }
