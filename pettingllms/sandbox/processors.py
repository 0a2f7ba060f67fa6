"""How many programs this machine can run at a time, and whether one got its processor."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def num_processors() -> int:
    """Processors that this process may use: those it may run on, within a container's quota."""
    if hasattr(os, "sched_getaffinity"):
        number = len(os.sched_getaffinity(0))
    else:
        number = os.cpu_count() or 1
    return max(1, math.floor(min(number, _quota())))


def _quota() -> float:
    """Processors' worth of time that a container may use; infinite outside of one."""
    for quota_file, period_file in (
        ("cpu.max", None),
        ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
    ):
        try:
            quota, *period = (CGROUPS / quota_file).read_text().split()
            if period_file is not None:
                period = (CGROUPS / period_file).read_text().split()
        except (OSError, ValueError):
            continue  # the other version of control groups, or none
        if quota not in ("max", "-1"):
            return int(quota) / int(period[0])
    return math.inf


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
