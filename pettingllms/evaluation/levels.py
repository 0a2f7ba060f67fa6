"""Which episodes an evaluation plays, and the hash that shows whether two played the same ones.

Levels are numbered 0, 1, 2, ...; the number and the root seed decide the level. Where an
environment has few levels, numbers repeat them; `distinct_levels` returns those that do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pettingllms.env import TextEnv
from pettingllms.seeding import derive_seed

PATIENCE = 500
"""Repeats in a row, plus one for every ten levels found, after which an environment counts as
having no more levels. One that makes up 1 % of the draws is then missed with probability 0.7 %."""


class EpisodeSpec(NamedTuple):
    """One episode: level and chance are fixed by it."""

    variant: str
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


def episode_spec(seed: int, variant: str, level: int, sample: int) -> EpisodeSpec:
    """Return an episode of an evaluation; variants differ in who plays, not in levels or chance."""
    chance = derive_seed(seed, "held-out", level, sample)
    return EpisodeSpec(variant, level, sample, level_seed(seed, level), chance)


def distinct_levels(
    env: TextEnv[Any], seed: int, num_levels: int, options: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return the numbers of the first levels that differ up to symmetry (`TextEnv.level_hash`).

    Args:
        env: The environment; a fork of it is reset.
        seed: Root seed of the evaluation.
        num_levels: How many are wanted, at least 1.
        options: Options of `reset`.

    Returns:
        [at most `num_levels`] increasing numbers; fewer if the environment seems to have no more.
    """
    env = env.fork()
    found: dict[str, int] = {}
    number = num_repeats = 0
    while len(found) < num_levels and num_repeats < PATIENCE + len(found) // 10:
        env.reset(seed=level_seed(seed, number), options=options)
        content = env.level_hash()
        num_repeats = num_repeats + 1 if content in found else 0
        found.setdefault(content, number)
        number += 1
    return tuple(found.values())


def manifest_of(initial_state_hashes: Iterable[str]) -> str:
    """Return 16 hexadecimal digits that identify a list of levels, by their content and order."""
    return hashlib.sha256("\n".join(initial_state_hashes).encode("ascii")).hexdigest()[:16]
