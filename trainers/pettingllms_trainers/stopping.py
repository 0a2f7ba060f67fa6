"""SIGTERM and SIGINT as a wish to stop: the run saves a checkpoint and ends."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["StopRequest", "StopRequested"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequested(Exception):
    """A signal asked to stop before there was anything to save."""


class StopRequest:
    """Remembers the first signal; a second one acts as if this object were not there.

    Used as a context in the main thread.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that asked to stop; None while nothing did."""
        self._previous: dict[signal.Signals, Any] = {}

    def check(self) -> None:
        """Stop where there is nothing to save.

        Raises:
            StopRequested: A signal has asked to stop.
        """
        if self.signal is not None:
            raise StopRequested(self.signal.name)

    def __enter__(self) -> Self:
        """Listen to the signals."""
        for kind in _SIGNALS:
            self._previous[kind] = signal.signal(kind, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore what listened before."""
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for kind, handler in self._previous.items():
            signal.signal(kind, handler)
        self._previous = {}
