"""Checks of seeds: equal seeds give equal episodes, here and in other processes."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np

from pettingllms.registry import make
from pettingllms.testing.play import SEEDS, Factory, episode, mixed_player, play, require


def check_determinism(factory: Factory) -> None:
    """Equal seeds give equal episodes, in one environment and in another."""
    env, other = factory(), factory()
    for seed in SEEDS:
        first = episode(env, seed)
        require(first == episode(env, seed), f"seed {seed} played twice gave two episodes")
        require(first == episode(other, seed), f"seed {seed} differs between two environments")
    env.reset(seed=5)
    env.reset()
    chained = env.state_hash()
    env.reset(seed=env.episode_seed)
    require(chained == env.state_hash(), "episode_seed does not reproduce an unseeded reset")


def check_variety(factory: Factory) -> None:
    """Other seeds give other levels, and agents can tell them apart.

    Not asked of a game that says `"seed_shows": False` in its `metadata`, such as a board game that
    always begins alike.
    """
    env = factory()
    if not env.metadata.get("seed_shows", True):
        return
    starts: set[str] = set()
    readings: set[tuple[str, ...]] = set()
    for seed in range(10, 40):
        env.reset(seed=seed)
        starts.add(env.state_hash())
        steps = play(env, mixed_player(random.Random(0)))
        readings.add(tuple(step["observation"] for step in steps))
    require(len(starts) > 1, "30 seeds gave the same initial state")
    require(len(readings) > 1, "no observation of whole episodes depends on the seed")


def check_global_rngs(factory: Factory) -> None:
    """Making, resetting and stepping leave Python's and numpy's global generators untouched."""
    state, numpy_state = random.getstate(), np.random.get_state()
    episode(factory(), 3)
    require(random.getstate() == state, "the state of the global `random` was changed")
    same = all(
        np.array_equal(a, b) for a, b in zip(numpy_state, np.random.get_state(), strict=True)
    )
    require(same, "numpy's global state was changed")


def check_other_process(env_id: str) -> None:
    """Equal seeds give equal episodes in another process with another PYTHONHASHSEED."""
    code = (
        "import sys; from pettingllms.testing.seeds import episode_digest; "
        "print(episode_digest(sys.argv[1]))"
    )
    digests: set[str] = set()
    for hash_seed in (1, 2):
        process = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, env_id],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            check=False,
            capture_output=True,
            text=True,
        )
        failed = f"{env_id} cannot be played in another process: {process.stderr[-2000:]}"
        require(process.returncode == 0, failed)
        digests.add(process.stdout)
    require(len(digests) == 1, f"{env_id}: episodes depend on PYTHONHASHSEED")


def episode_digest(env_id: str) -> str:
    """Return hashes of the episodes of three seeds, for comparison between processes."""
    env = make(env_id, checks=False)
    return " ".join(episode(env, seed)[-1]["state_hash"] for seed in SEEDS)
