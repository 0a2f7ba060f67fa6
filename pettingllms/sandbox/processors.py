"""How many programs this machine can run at a time."""

from __future__ import annotations

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
