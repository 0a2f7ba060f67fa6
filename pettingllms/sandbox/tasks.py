"""The limit on threads, per run (RLIMIT_NPROC), where the kernel counts per user."""

from __future__ import annotations

import os
import time
from pathlib import Path

_REFRESH_S = 5.0
_MARGIN = 256


class TaskBudget:
    """RLIMIT_NPROC for a run, such that all runs together stay within what their limits say.

    Args:
        counts_alone: Whether the jail's user has no other processes: a user namespace, or a uid
            that only this sandbox uses. Otherwise the user's other threads are added on top.
        num_servers: Fork servers that count for the same user.
        num_running: Programs that run at once and count for the same user.
    """

    def __init__(self, *, counts_alone: bool, num_servers: int, num_running: int) -> None:
        self._counts_alone = counts_alone
        self._num_servers = num_servers
        self._num_running = num_running
        self._others = 0
        self._counted_s = float("-inf")

    def __call__(self, max_processes: int) -> int:
        """The limit for a run that may have `max_processes` threads besides its first."""
        own = 2 * self._num_servers + self._num_running * (max_processes + 1)
        return own if self._counts_alone else own + self._count_others()

    def _count_others(self) -> int:
        now = time.monotonic()
        if now - self._counted_s > _REFRESH_S:
            self._others = _MARGIN + _num_threads_of(os.getuid())
            self._counted_s = now
        return self._others


def _num_threads_of(uid: int) -> int:
    total = 0
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if process.stat().st_uid == uid:
                total += len(os.listdir(process / "task"))
        except OSError:
            continue  # it ended meanwhile
    return total
