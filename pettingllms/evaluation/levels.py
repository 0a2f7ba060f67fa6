"""Which episodes an evaluation plays, and the hash that tells whether two played the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from pettingllms.seeding import derive_seed


class EpisodeSpec(NamedTuple):
    """One episode: level and chance are fixed by it."""

    arm: str
    """Which line-up of policies plays."""
    level: int
    """Number of the level, from 0."""
    sample: int
    """Number of the play of this level, from 0."""
    level_seed: int
    """Seed the environment is reset with."""
    seed: int
    """Seed of everything that policies draw in the episode."""


def level_seed(seed: int, level: int) -> int:
    """Return the seed of a held-out level: the same in every evaluation with this root seed."""
    return derive_seed(seed, "held-out level", level)


def episode_spec(seed: int, arm: str, level: int, sample: int) -> EpisodeSpec:
    """Return an episode of an evaluation; arms differ in who plays, not in levels or chance."""
    chance = derive_seed(seed, "held-out", level, sample)
    return EpisodeSpec(arm, level, sample, level_seed(seed, level), chance)


def manifest_of(initial_state_hashes: Iterable[str]) -> str:
    """Return 16 hexadecimal digits that identify a list of levels, by their content and order."""
    return hashlib.sha256("\n".join(initial_state_hashes).encode("ascii")).hexdigest()[:16]
