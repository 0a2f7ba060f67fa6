"""What a judge found out, kept for the next time within a bound on memory."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections import OrderedDict
from typing import Any, cast

ENTRY_BYTES = 300
"""What an entry takes besides its value: the digest, its place in the table, and their lists."""


def key_of(*parts: object) -> bytes:
    """Return the digest that stands for parts of plain values, whatever their size."""
    written = repr(parts).encode("utf-8", errors="surrogatepass")
    return hashlib.blake2b(written, digest_size=16).digest()


def size_of(value: object) -> int:
    """Return the bytes of a value of texts, tuples and sets; numbers and names are shared."""
    if isinstance(value, tuple | frozenset):
        items = cast("tuple[object, ...]", value)
        return sys.getsizeof(items) + sum(map(size_of, items))
    return sys.getsizeof(value) if type(value) is str else 0


class Memory:
    """A table bounded by bytes, from which the least recently used entry goes first. Thread-safe.

    Args:
        max_bytes: Bound on all entries together, by `size_of` and `ENTRY_BYTES`. What alone takes
            more is not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()

    def recall(self, key: bytes) -> Any:
        """Return what is known under a key, or None."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def remember(self, key: bytes, value: object) -> None:
        """Keep a value under a key."""
        size = ENTRY_BYTES + size_of(value)
        with self._lock:
            self._num_bytes += size - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, size)
            while self._num_bytes > self._max_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self._num_bytes -= freed
