"""Checks of seeds: equal seeds give equal episodes, and nothing else is random."""

from __future__ import annotations

import random

import numpy as np

from pettingllms.testing.play import SEEDS, episode, require
from pettingllms.testing.subject import Subject


def check_determinism(subject: Subject) -> None:
    """Equal seeds give equal episodes, in one environment and in another."""
    env, other = subject(), subject()
    for seed in SEEDS:
        first = episode(env, seed)
        require(first == episode(env, seed), f"seed {seed} played twice gave two episodes")
        require(first == episode(other, seed), f"seed {seed} differs between two environments")
    env.reset(seed=5)
    env.reset()
    chained = env.state_hash()
    env.reset(seed=env.episode_seed)
    require(chained == env.state_hash(), "episode_seed does not reproduce an unseeded reset")


def check_global_rngs(subject: Subject) -> None:
    """Making, resetting and stepping leave Python's and numpy's global generators untouched."""
    state, numpy_state = random.getstate(), np.random.get_state()
    episode(subject(), 3)
    require(random.getstate() == state, "the state of the global `random` was changed")
    same = all(
        np.array_equal(a, b) for a, b in zip(numpy_state, np.random.get_state(), strict=True)
    )
    require(same, "numpy's global state was changed")
