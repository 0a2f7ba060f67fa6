"""A pool of places, handed to those who owe least, in the order of requests among equals."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

PlaceT = TypeVar("PlaceT")


class _Turn(NamedTuple, Generic[PlaceT]):
    caller: int
    place: Future[PlaceT]


class FairQueue(Generic[PlaceT]):
    """A fixed number of places.

    A lock or a `queue.Queue` lets the thread that gives a place back take it again before those
    who wait, so one caller that keeps asking can keep all others waiting. Here a place is handed
    over to one in the line.

    Args:
        places: The places, all free.
        owed_s: What a caller owes the others, in seconds.
    """

    def __init__(self, places: Iterable[PlaceT], owed_s: Callable[[int], float]) -> None:
        self._lock = threading.Lock()
        self._free = deque(places)
        self._owed_s = owed_s
        self._line: list[_Turn[PlaceT]] = []
        """In the order of asking."""

    def take(self, caller: int) -> PlaceT:
        """Return a place; wait until one is free and all who owe less have been served."""
        with self._lock:
            if self._free:
                return self._free.popleft()
            turn = _Turn[PlaceT](caller, Future())
            self._line.append(turn)
        try:
            return turn.place.result()
        except BaseException:  # the wait was interrupted: the place must not be lost
            if not turn.place.cancel():
                self.give_back(turn.place.result())
            raise

    def give_back(self, place: PlaceT) -> None:
        """Hand a place to the one in the line who owes least, or keep it until the next request."""
        with self._lock:
            while self._line:
                owed = [self._owed_s(turn.caller) for turn in self._line]
                turn = self._line.pop(owed.index(min(owed)))
                if turn.place.set_running_or_notify_cancel():
                    turn.place.set_result(place)
                    return
            self._free.append(place)
