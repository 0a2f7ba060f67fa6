"""The tier that is not a jail: a plain process with resource limits, for machines without one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from pettingllms.errors import SandboxError
from pettingllms.sandbox.jail import protocol
from pettingllms.sandbox.outcome import ChildReport, ExecutionResult, Limits, judge, sandbox_failure
from pettingllms.sandbox.worker import ExecutionRequest, bare_environment

SWITCH = "PETTINGLLMS_ALLOW_UNSAFE_SANDBOX"

_SCRIPT = Path(__file__).parent / "jail" / "plain.py"
_STAGES = {
    b"locked running": protocol.RUNNING,
    b"locked no syntax": protocol.BAD_SYNTAX,
    b"locked ": protocol.LOCKED,
}


class UnsafeSandboxWarning(UserWarning):
    """Model-written code runs without a jail."""


class UnsafePool:
    """Same interface as `pool.Pool`, without protection.

    Args:
        workers: Programs that run at the same time.

    Raises:
        SandboxError: The environment variable that allows this is not set to 1.
    """

    def __init__(self, workers: int) -> None:
        if os.environ.get(SWITCH) != "1":
            raise SandboxError(
                f"isolation='unsafe' is not a jail and is refused unless {SWITCH}=1 is set. A "
                "program could then read and delete your files, use the network, and outlive its "
                "run."
            )
        warnings.warn(
            "isolation='unsafe': model-written code can read and write your files, reach the "
            "network, see and signal your processes, and leave processes behind.",
            UnsafeSandboxWarning,
            stacklevel=5,
        )
        self.window = 2 * workers
        self.num_restarts = 0
        self.server_pids: list[int] = []
        self.facts: dict[str, Any] = {"landlock": 0, "uid": os.getuid()}
        self._threads = ThreadPoolExecutor(workers, "pettingllms-unsafe")

    def submit(self, request: ExecutionRequest) -> Future[tuple[ExecutionResult, bytes]]:
        """Queue a request."""
        return self._threads.submit(_run, request)

    def close(self) -> None:
        """Wait for what runs, and drop what waits."""
        self._threads.shutdown(cancel_futures=True)


def _run(request: ExecutionRequest) -> tuple[ExecutionResult, bytes]:
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(5)]
        source, stdin, stdout, stderr, result = files
        # Not a file, whose size is limited as that of the output is, possibly to one byte.
        reached, stage = os.pipe()
        stack.callback(os.close, reached)
        for file, data in ((source, request.code), (stdin, request.stdin)):
            file.write(data)
            file.flush()
            file.seek(0)
        result_fd = result.fileno() if request.calls_function else -1
        passed = [source.fileno(), stage, result.fileno()]
        numbers = [str(source.fileno()), str(stage), str(result_fd)]
        flags = ("-s", "-S", "-P", "-B", "-X", "utf8")
        limits = json.dumps(_resource_limits(request.limits))
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                [sys.executable, *flags, str(_SCRIPT), limits, *numbers],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=bare_environment(),
                cwd=tempfile.gettempdir(),
                pass_fds=passed,
                start_new_session=True,
            )
        except OSError as error:
            return sandbox_failure(f"no process for the run: {error}"), b""
        finally:
            os.close(stage)
        report = _wait(process, started, request.limits.wall_s)
        most = request.limits.output_bytes + 1
        report = report._replace(stage=_STAGES.get(os.read(reached, 64), protocol.SETTING_UP))
        judged = judge(report, request.limits, _read(stdout, most), _read(stderr, most))
        return judged, _read(result, most) if request.calls_function else b""


def _resource_limits(limits: Limits) -> dict[str, int]:
    wanted = {
        "RLIMIT_CPU": int(-(-limits.cpu_s // 1)),
        "RLIMIT_FSIZE": limits.output_bytes + 1,
        "RLIMIT_NOFILE": limits.max_open_files,
        "RLIMIT_CORE": 0,
    }
    # macOS does not enforce the address space and refuses to set it.
    return {**wanted, "RLIMIT_AS": limits.memory_bytes} if sys.platform == "linux" else wanted


def _wait(process: subprocess.Popen[bytes], started: float, wall_s: float) -> ChildReport:
    killed_for = 0
    pause_s = 0.0005
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if not killed_for and time.monotonic() - started > wall_s:
            os.killpg(process.pid, signal.SIGKILL)
            killed_for = protocol.OUT_OF_TIME
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # whoever stayed in its group
    rss = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    wall = time.monotonic() - started
    cpu_s = usage.ru_utime + usage.ru_stime
    stage = protocol.SETTING_UP
    return ChildReport(0, status, wall, cpu_s, rss, stage, killed_for, "")


def _read(file: IO[bytes], most: int) -> bytes:
    file.seek(0)
    return file.read(most)
