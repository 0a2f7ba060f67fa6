"""A pool of places, handed out in the order of requests."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Generic, TypeVar

PlaceT = TypeVar("PlaceT")


class FairQueue(Generic[PlaceT]):
    """A fixed number of places, taken in the order of asking.

    A lock or a `queue.Queue` lets the thread that gives a place back take it again before those
    who wait, so one caller that keeps asking can keep all others waiting. Here a place is handed
    over to the first in the line.

    Args:
        places: The places, all free.
    """

    def __init__(self, places: Iterable[PlaceT]) -> None:
        self._lock = threading.Lock()
        self._free = deque(places)
        self._line: deque[Future[PlaceT]] = deque()

    def take(self) -> PlaceT:
        """Return a place; wait until one is free and all earlier callers have been served."""
        with self._lock:
            if self._free:
                return self._free.popleft()
            turn: Future[PlaceT] = Future()
            self._line.append(turn)
        try:
            return turn.result()
        except BaseException:  # the wait was interrupted: the place must not be lost
            if not turn.cancel():
                self.give_back(turn.result())
            raise

    def give_back(self, place: PlaceT) -> None:
        """Hand a place to the first in the line, or keep it until the next request."""
        with self._lock:
            while self._line:
                turn = self._line.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(place)
                    return
            self._free.append(place)
