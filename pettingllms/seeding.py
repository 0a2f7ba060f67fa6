"""Seeds, checked and derived from one another, and the splits that levels belong to."""

from __future__ import annotations

import operator
import secrets
from hashlib import blake2b

from pettingllms.arguments import check_choice
from pettingllms.errors import InvalidArgument


def checked_seed(seed: int) -> int:
    """A seed as a plain int.

    Raises:
        InvalidArgument: If it is not a non-negative integer.
    """
    allowed = "None or a non-negative integer"
    try:
        value = operator.index(seed)
    except TypeError as error:
        raise InvalidArgument("seed", seed, allowed) from error
    if value < 0 or isinstance(seed, bool):
        raise InvalidArgument("seed", seed, allowed)
    return value


def next_seed(previous: int | None) -> int:
    """The seed after `previous` in the chain of unseeded resets; a random one for None."""
    if previous is None:
        return secrets.randbits(63)
    digest = blake2b(str(previous).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def derive_seed(seed: int, *path: int | str) -> int:
    """A seed that depends on `seed` and on every part of `path` only.

    Args:
        seed: Root seed, any integer.
        path: What the derived seed is for.

    Returns:
        An integer in `[0, 2**53)`: exact in JSON, accepted by environments.
    """
    text = repr((seed, *path)).encode("utf-8")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11


SPLITS = ("train", "validation", "test")
"""The names of the splits; about 80, 10 and 10 % of all contents."""


def split_of(canonical: bytes) -> str:
    """The split that a content belongs to.

    Args:
        canonical: The canonical form of a level: equal for all levels that are the same up to
            symmetry (rotations, reflections, relabellings).

    Returns:
        `"train"` (80 %), `"validation"` (10 %) or `"test"` (10 %), by a hash of the content, so
        that a level can never be in two splits.
    """
    bucket = int.from_bytes(blake2b(canonical, digest_size=8).digest()) % 10
    if bucket < 8:
        return "train"
    return "validation" if bucket == 8 else "test"


def check_split(split: object) -> None:
    """Refuse everything but the name of a split, and None, which means all of them.

    Raises:
        InvalidArgument: If it is neither.
    """
    check_choice("split", split, SPLITS, none="all")
