"""What a judge found out, kept for the next time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Memory(Generic[_Value]):
    """A bounded table from which the least recently used entry goes first. Thread-safe.

    Args:
        size: Maximum number of entries.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Value] = OrderedDict()

    def recall(self, key: Hashable) -> _Value | None:
        """Return what is known under a key, or None."""
        with self._lock:
            known = self._entries.get(key)
            if known is not None:
                self._entries.move_to_end(key)
            return known

    def remember(self, key: Hashable, value: _Value) -> None:
        """Keep a value under a key."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)
