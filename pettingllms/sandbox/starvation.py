"""How much of its time a program was asleep, and how much it ran or waited for a processor."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_PROC = Path("/proc")


def runnable_s(process: int) -> float:
    """Seconds for which the busiest thread of a process ran or waited in a run queue.

    Of one thread, and not of all together: many threads that wait for each other a moment are not
    one that waits all the time.

    Args:
        process: Its pidfd. What has ended was not starved: it counts 0.
    """
    with contextlib.suppress(OSError, ValueError):
        fields = dict(
            line.split(":", 1)
            for line in (_PROC / "self" / "fdinfo" / str(process)).read_text().splitlines()
        )
        threads = os.scandir(_PROC / fields["Pid"].strip() / "task")
        return max(map(_runnable_s, map(Path, threads)), default=0.0)
    return 0.0


def _runnable_s(thread: Path) -> float:
    with contextlib.suppress(OSError):
        ran_ns, waited_ns, _ = map(int, (thread / "schedstat").read_text().split())
        return (ran_ns + waited_ns) / 1e9
    return 0.0  # it has ended


def is_seen() -> bool:
    """Whether the kernel counts how long threads wait for a processor."""
    return _runnable_s(_PROC / "thread-self") > 0
