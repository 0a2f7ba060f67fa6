"""The servers of one sandbox: opened at first use, closed once, never shared with a fork."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from pettingllms.errors import SandboxError
from pettingllms.sandbox import starvation
from pettingllms.sandbox.isolation import (
    FILES_NOT_HIDDEN,
    JAILS,
    NOT_COVERED,
    STARVATION_NOT_SEEN,
    Tier,
    check_platform,
)
from pettingllms.sandbox.opening import open_jail
from pettingllms.sandbox.pool import Pool
from pettingllms.sandbox.unsafe import UnsafePool


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

    @property
    def are_running(self) -> bool:
        """Whether a request need not wait for servers to start."""
        return self._pool is not None

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
        not_covered = list(NOT_COVERED) if is_jail else ["everything: it is no jail"]
        if is_jail and not pool.facts["hides_files"]:
            not_covered.append(FILES_NOT_HIDDEN)
        if is_jail and not starvation.is_seen():
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
