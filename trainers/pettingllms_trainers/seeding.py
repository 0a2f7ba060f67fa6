"""Seeds derived from a path, so that no draw depends on what was drawn before it."""

from __future__ import annotations

import hashlib

__all__ = ["derive_seed"]


def derive_seed(seed: int, *path: int | str) -> int:
    """Return a seed that depends on `seed` and on every part of `path` only.

    Args:
        seed: Root seed, any integer.
        path: What the derived seed is for, for example `("sample", step, episode, node)`.

    Returns:
        An integer in `[0, 2**53)`: exact in JSON, accepted by torch, numpy and environments.
    """
    text = repr((seed, *path)).encode("utf-8")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 11
