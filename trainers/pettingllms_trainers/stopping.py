"""SIGTERM and SIGINT as a wish to stop: the run saves a checkpoint and ends."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Self

from pettingllms_trainers.ranks import Ranks

_ANSWER = "stopping when what is being computed is done; a second one stops at once"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequested(Exception):
    """A signal asked to stop before there was anything to save."""


class StopRequest:
    """Remembers the first signal; a second one acts as if this object were not there.

    Used as a context. Signals reach the main thread alone, so in another one it hears of none. With
    several ranks `is_wanted` and `check` are collective, and a second signal is ignored: a launcher
    passes on what a terminal has sent to all anyway.

    Args:
        ranks: The processes of the run; None for this one alone.
    """

    def __init__(self, ranks: Ranks | None = None) -> None:
        self._ranks = ranks or Ranks()
        self.signal: signal.Signals | None = None
        """The signal that asked to stop; None while nothing did."""
        self._previous: dict[signal.Signals, Any] = {}

    def is_wanted(self) -> bool:
        """Return whether a signal has asked some rank to stop; then all have it."""
        asked = max(self._ranks.gather([int(self.signal or 0)]))
        if asked:
            self.signal = signal.Signals(asked)
        return bool(asked)

    def check(self) -> None:
        """Stop where there is nothing to save.

        Raises:
            StopRequested: A signal has asked to stop.
        """
        if self.is_wanted():
            raise StopRequested

    def __enter__(self) -> Self:
        """Listen to the signals."""
        if threading.current_thread() is not threading.main_thread():
            return self
        for kind in _SIGNALS:
            self._previous[kind] = signal.signal(kind, self._remember)
        return self

    def __exit__(self, *raised: Any) -> None:
        """Restore what listened before."""
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        # What is being done may take minutes. A file object could be in the middle of writing.
        if self._ranks.is_main:
            os.write(2, f"\n{self.signal.name}: {_ANSWER}\n".encode())
        if self._ranks.size == 1:
            self._restore()

    def _restore(self) -> None:
        for kind, handler in self._previous.items():
            signal.signal(kind, handler)
        self._previous = {}
