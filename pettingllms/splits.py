"""Train, validation and test sets that are disjoint by content, whatever the seeds."""

from __future__ import annotations

from hashlib import blake2b

from pettingllms.arguments import check_choice

SPLITS = ("train", "validation", "test")
"""The names of the splits; about 80, 10 and 10 % of all contents."""


def split_of(canonical: bytes) -> str:
    """Return the split that a content belongs to.

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
