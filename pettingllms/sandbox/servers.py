"""The servers of one sandbox: opened at first use, closed once, never shared with a fork.

Before anything runs in a jail, a canary in it shows that it holds.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from pathlib import Path
from typing import Any

from pettingllms.errors import SandboxError
from pettingllms.sandbox import processors
from pettingllms.sandbox.isolation import (
    CANARY,
    FILES_NOT_HIDDEN,
    JAILS,
    LOOKS_UP_FILES,
    NOT_COVERED,
    STARVATION_NOT_SEEN,
    Tier,
    check_platform,
    jail_uid,
    server_config,
)
from pettingllms.sandbox.library import archive
from pettingllms.sandbox.outcome import MAX_OPEN_FILES, Limits, Status
from pettingllms.sandbox.pool import Pool
from pettingllms.sandbox.syscalls import syscall_numbers
from pettingllms.sandbox.unsafe import UnsafePool
from pettingllms.sandbox.worker import ExecutionRequest, Worker


class Servers:
    """Opens the best pool that the machine offers, and closes it when it is no longer needed.

    Args:
        isolation: "auto" or the name of a tier.
        flavour: What programs can import.
        workers: Programs that run at the same time.
    """

    def __init__(self, isolation: str, flavour: str, workers: int) -> None:
        self._isolation = isolation
        self._flavour = flavour
        self._workers = workers
        self._lock = threading.Lock()
        self._pool: Pool | UnsafePool | None = None
        self._tier = Tier.UNSAFE
        self._reasons: dict[str, str] = {}
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._is_closed = False
        _all_servers.add(self)

    def pool(self) -> Pool | UnsafePool:
        """The pool, opened now if it was not.

        Raises:
            SandboxError: It was closed, or the machine does not offer the isolation.
        """
        with self._lock:
            if self._is_closed:
                raise SandboxError("this sandbox is closed. Make a new one.")
            if self._pool is None:
                self._tier, self._pool = self._open()
                self._finalizer = weakref.finalize(self, self._pool.close)
            return self._pool

    def close(self) -> None:
        """End the servers; they are not restarted."""
        with self._lock:
            self._is_closed = True
            self._pool = None
        if self._finalizer is not None:
            self._finalizer()

    def forget(self) -> None:
        """In a forked process: the servers are the other process's, the lock may be held there."""
        self._lock = threading.Lock()
        self._pool = None

    def describe(self) -> dict[str, Any]:
        """What the pool's servers say about themselves, and what they do not cover."""
        pool = self.pool()
        is_jail = self._tier in JAILS
        not_covered = list(NOT_COVERED) if is_jail else ["everything: it is not a jail"]
        if is_jail and not pool.facts["hides_files"]:
            not_covered.append(FILES_NOT_HIDDEN)
        if is_jail and not processors.is_seen():
            not_covered.append(STARVATION_NOT_SEEN)
        return {
            "isolation": str(self._tier),
            "is_jail": is_jail,
            "server_pids": pool.server_pids,
            "num_restarts": pool.num_restarts,
            "not_available": dict(self._reasons),
            "not_covered": not_covered,
            **pool.facts,
        }

    def _open(self) -> tuple[Tier, Pool | UnsafePool]:
        if self._isolation == "unsafe":
            return Tier.UNSAFE, UnsafePool(self._workers)
        check_platform()
        self._reasons = {}
        candidates = JAILS if self._isolation == "auto" else (Tier(self._isolation),)
        for tier in candidates:
            try:
                return tier, open_jail(tier, self._flavour, self._workers)
            except SandboxError as error:
                self._reasons[str(tier)] = str(error)
        reasons = "; ".join(f"{tier}: {reason}" for tier, reason in self._reasons.items())
        raise SandboxError(
            f"this machine does not offer isolation={self._isolation!r}: {reasons}. "
            "Run `pettingllms doctor`; in a container, the default settings of Docker are enough "
            "for 'landlock' and 'sealed'."
        )


_all_servers: weakref.WeakSet[Servers] = weakref.WeakSet()


def _forget_all() -> None:
    for servers in list(_all_servers):
        servers.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


_MAX_SERVERS = 16
_PIPE_BUDGET = Path("/proc/sys/fs/pipe-user-pages-soft")
_PAGES_PER_PIPE = 16
_CALLERS_SHARE = 4
logger = logging.getLogger(__name__)
_instances = itertools.count()


def open_jail(tier: Tier, flavour: str, workers: int) -> Pool:
    """Start a pool of one tier and show by a canary that it holds.

    Raises:
        SandboxError: The machine does not offer the tier, or the canary got out.
    """
    uid = jail_uid(os.getpid() * 31 + next(_instances))
    num_servers = min(workers, _MAX_SERVERS)
    slots = -(-workers // num_servers)
    config = server_config(tier, flavour, slots, uid, open_files_of(workers))
    library = archive(flavour)
    pool = Pool(lambda: Worker(config, library), num_servers, slots)
    try:
        _check_canary(pool, tier)
    except SandboxError:
        pool.close()
        raise
    return pool


def open_files_of(workers: int) -> int:
    """How many descriptors each of so many runs may have.

    The kernel counts the pages of all pipes of a user; beyond a budget, every further pipe of that
    user holds two pages instead of 16, whoever makes it. All runs together stay below it, with a
    quarter left for the caller.
    """
    try:
        pages = int(_PIPE_BUDGET.read_text())
    except (OSError, ValueError):
        pages = 16_384  # the kernel's own choice
    if not pages:
        return MAX_OPEN_FILES
    pipes = (pages - pages // _CALLERS_SHARE) // _PAGES_PER_PIPE // workers
    # Besides them the standard streams, and the file of a called function.
    number = min(MAX_OPEN_FILES, 2 * pipes + 4)
    if number < Limits().max_open_files:
        logger.warning(
            "each of workers=%d can open %d descriptors only, so that their pipes do not use up "
            "the budget of this user. Raise fs.pipe-user-pages-soft (now %d) for more.",
            *(workers, number, pages),
        )
    return number


def _check_canary(pool: Pool, tier: Tier) -> None:
    numbers = syscall_numbers()
    stdin = f"{numbers['newfstatat']} {numbers['statx']}".encode()
    result, _ = pool.submit(ExecutionRequest(CANARY.encode(), stdin, Limits())).result()
    if result.status is not Status.OK:
        last_line = result.stderr.strip().rpartition("\n")[2]
        raise SandboxError(f"a canary in the jail ended with {result.status}: {last_line}")
    *possible, end = result.stdout.splitlines()
    if not pool.facts["hides_files"]:
        possible = [name for name in possible if name != LOOKS_UP_FILES]
    if possible or end != "end":
        raise SandboxError(f"the jail {tier!s} does not hold; in it one can {', '.join(possible)}")
