"""The global random generators, kept as they are while a library does what it likes with them."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Generator

import numpy as np


@contextlib.contextmanager
def kept_generators() -> Generator[None]:
    """Undo what happens inside to the global generators of Python, NumPy and torch.

    Libraries seed or draw from them when they start; results of the caller must not depend on that.
    torch is neither imported here, nor are GPUs touched that are not in use yet.
    """
    state, numpy_state = random.getstate(), np.random.get_state()
    torch = sys.modules.get("torch")
    try:
        with contextlib.ExitStack() as stack:
            if torch is not None:
                devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
                stack.enter_context(torch.random.fork_rng(devices))
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
