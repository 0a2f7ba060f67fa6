"""The global random generators, lent to third-party code that draws from them."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np


@dataclass(frozen=True)
class Chance:
    """A state of Python's and numpy's global generators."""

    python: tuple[Any, ...]
    """What `random.getstate` returns."""
    numpy: tuple[Any, ...]
    """What `numpy.random.get_state` returns, its keys as bytes."""

    @classmethod
    def now(cls) -> Chance:
        """Return the present state."""
        kind, keys, *rest = cast("tuple[Any, ...]", np.random.get_state())
        return cls(random.getstate(), (kind, keys.tobytes(), *rest))

    def restore(self) -> None:
        """Put the generators into this state."""
        kind, keys, *rest = self.numpy
        random.setstate(self.python)
        np.random.set_state((kind, np.frombuffer(keys, np.uint32), *rest))


@contextmanager
def lent_chance(start: Chance | int) -> Generator[Callable[[], Chance]]:
    """Lend the global random generators to third-party code, and restore them afterwards.

    Not for several threads of a process at once.

    Args:
        start: The state in which they are lent, or a seed of 32 bits.

    Returns:
        A context that yields a function, which returns the generators' current state.
    """
    before = Chance.now()
    if isinstance(start, int):
        random.seed(start)
        np.random.seed(start)
    else:
        start.restore()
    try:
        yield Chance.now
    finally:
        before.restore()
