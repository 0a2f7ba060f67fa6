"""Checks of levels: they differ from seed to seed, and their splits are disjoint."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.splits import SPLITS
from pettingllms.testing.play import AnyEnv, mixed_actor, play, require
from pettingllms.testing.report import NotPromised, SkippedCheck
from pettingllms.testing.subject import Subject

DRAWS = 40
"""Levels that are drawn from each split."""


def check_variety(subject: Subject) -> None:
    """Other seeds give other levels, and agents can distinguish them.

    Not asked of a game that says `"seed_shows": False` in its `metadata`, such as a board game that
    always begins alike.
    """
    env = subject()
    if not env.metadata.get("seed_shows", True):
        raise NotPromised('The metadata say that every level is the same ("seed_shows": False).')
    starts: set[str] = set()
    readings: set[tuple[str, ...]] = set()
    for seed in range(10, 40):
        env.reset(seed=seed)
        starts.add(env.state_hash())
        readings.add(tuple(map(str, map(env.observe, env.possible_agents))))
    require(len(starts) > 1, "30 seeds gave the same initial state.")
    if len(readings) == 1:  # the level may show later
        readings = {tuple(s["observation"] for s in _replayed(env, seed)) for seed in range(10, 40)}
    require(len(readings) > 1, "No observation of whole episodes depends on the seed.")


def _replayed(env: AnyEnv, seed: int) -> list[dict[str, Any]]:
    env.reset(seed=seed)
    return play(env, mixed_actor(random.Random(0)))


def check_splits(subject: Subject) -> None:
    """Levels of different splits differ, whatever the seeds.

    Levels are compared as they are. Whether two of them are the same up to symmetry, only the
    environment's own tests can say.
    """
    subject.require_argument("split")
    if subject.kwargs.get("levels") is not None:
        raise NotPromised("The levels are given; they have no splits.")
    levels: dict[str, set[str]] = {}
    for split in SPLITS:
        try:
            env = subject(split=split)
        except InvalidArgument:  # a workflow has tasks of some splits only
            continue
        try:
            levels[split] = {_level(env, seed) for seed in range(DRAWS)}
        except UnreachableRequest as error:
            raise SkippedCheck(f"No levels of the split {split!r} were found: {error}") from error
    require(len(levels) > 1, f"There are levels of {', '.join(levels)} only.")
    for one, other in combinations(levels, 2):
        shared = len(levels[one] & levels[other])
        require(
            not shared,
            f"{shared} of {len(levels[other])} levels of the split {other!r} are levels of "
            f"{one!r} too: the split is ignored or leaks.",
        )


def _level(env: AnyEnv, seed: int) -> str:
    env.reset(seed=seed)
    return env.state_hash()
