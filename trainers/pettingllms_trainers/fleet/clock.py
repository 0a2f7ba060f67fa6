"""An event loop whose clock leaps: it never waits, and its time is that of what was simulated."""

from __future__ import annotations

import asyncio
import selectors


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs coroutines in simulated time; `time` is in simulated seconds, from 0.

    Coroutines may await each other and `asyncio.sleep`, no sockets and no threads.

    Source:
        Discrete-event simulation: with nothing left to do at a moment the clock goes to the next
        event (Law, Simulation Modeling and Analysis, section 1.3).
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Leaping(self))

    def time(self) -> float:
        """Return the simulated seconds since the start."""
        return self._now_s

    def leap(self, seconds: float) -> None:
        """Let time pass in which nothing else happens here: to the next event, or in a caller."""
        self._now_s += seconds


class _Leaping(selectors.DefaultSelector):
    """Selects without waiting: the loop's time passes instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("the simulation stands still: all wait, and nothing is to happen")
        if not ready and timeout:
            self._loop.leap(timeout)
        return ready
