"""Callers that share the work of one process, and what each has cost the others."""

from __future__ import annotations

import itertools
import threading
import time
from contextvars import ContextVar

ACTING: ContextVar[int | None] = ContextVar("ACTING", default=None)
"""Set by whoever acts in the name of a caller, to its number."""

_numbers = itertools.count(1)


def new_caller() -> int:
    """The number of one more caller, such as an environment."""
    return -next(_numbers)  # a thread's number is positive


def current_caller() -> int:
    """The caller in whose name this code runs; where nobody set one, the thread."""
    caller = ACTING.get()
    return threading.get_ident() if caller is None else caller


class FairShare:
    """Seconds that callers have cost others, forgiven at a constant rate. Thread-safe.

    Args:
        forgiven: Seconds of debt that a second on the clock takes away, per caller, above 0.
    """

    def __init__(self, forgiven: float) -> None:
        self._forgiven = forgiven
        self._lock = threading.Lock()
        self._free_s: dict[int, float] = {}
        """Caller -> when it owes nothing any more."""

    def owed_s(self, caller: int) -> float:
        """What a caller owes now."""
        with self._lock:
            left_s = self._free_s.get(caller, 0.0) - time.monotonic()
            if left_s > 0:
                return left_s * self._forgiven
            # Only those who owe something are kept.
            self._free_s.pop(caller, None)
            return 0.0

    def charge(self, caller: int, seconds: float) -> None:
        """Add to the debt of a caller."""
        with self._lock:
            now = time.monotonic()
            free_s = max(now, self._free_s.get(caller, 0.0)) + seconds / self._forgiven
            self._free_s[caller] = free_s
            if len(self._free_s) > 1000:
                self._free_s = {who: at for who, at in self._free_s.items() if at > now}
