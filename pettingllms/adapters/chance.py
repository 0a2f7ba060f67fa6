"""The global random generators, lent to third-party code that draws from them."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Chance:
    """A state of Python's and numpy's global generators."""

    python: Any
    numpy: Any


@contextmanager
def lent_chance(start: Chance | int) -> Generator[Callable[[], Chance]]:
    """Lend the global random generators to third-party code, and restore them afterwards.

    Not for several threads of a process at once.

    Args:
        start: The state in which they are lent, or a seed of 32 bits.

    Returns:
        A context that yields a function, which returns the generators' current state.
    """
    python, numpy = random.getstate(), np.random.get_state()
    if isinstance(start, int):
        random.seed(start)
        np.random.seed(start)
    else:
        random.setstate(start.python)
        np.random.set_state(start.numpy)
    try:
        yield lambda: Chance(random.getstate(), np.random.get_state())
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
