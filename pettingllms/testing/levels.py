"""Checks of levels: there are many, their splits are disjoint, and their length is right."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import SPLITS
from pettingllms.testing.play import AnyEnv, mixed_actor, play, require, scripted_actor, start_of
from pettingllms.testing.report import NotPromised, SkippedCheck, Subject

# Split -> levels that are drawn. What two splits have in common shows by the product of their
# numbers, and a level of train takes an eighth of the draws of one of the others.
DRAWS = {"train": 300, "validation": 30, "test": 30}
# Seeds of the levels whose shortest solutions are checked.
LENGTH_SEEDS = range(8)
# Seeds after which levels may come back if only a part of the seed is used.
PERIOD_SEEDS, PERIODS = 12, (*range(1, 17), 20, 100, 1 << 16, 1 << 31, 1 << 32, 1 << 64)
# Different levels that 30 seeds must give, unless the levels themselves are an argument.
MIN_LEVELS = 5
# Arguments with which the caller gives the levels.
GIVEN_LEVELS = ("levels", "source")


def check_variety(subject: Subject) -> None:
    """Seeds give many levels, and agents can distinguish them.

    Not asked of a game that says `"seed_shows": False` in its `metadata`, such as a board game that
    always begins alike.
    """
    env = subject()
    if not env.metadata.get("seed_shows", True):
        raise NotPromised('The metadata say that every level is the same ("seed_shows": False).')
    are_given = any(subject.kwargs.get(name) is not None for name in GIVEN_LEVELS)
    fewest = 2 if are_given else env.metadata.get("min_levels", MIN_LEVELS)
    starts: set[str] = set()
    readings: set[tuple[str, ...]] = set()
    for seed in range(10, 40):
        env.reset(seed=seed)
        starts.add(env.state_hash())
        readings.add(tuple(map(str, map(env.observe, env.possible_agents))))
    require(
        len(starts) >= fewest,
        f"30 seeds gave {len(starts)} different initial states; at least {fewest} are needed, or "
        'fewer if the metadata say so ("min_levels").',
    )
    _require_own_levels(env)
    if len(readings) == 1:  # the level may show later
        readings = {tuple(s["observation"] for s in _replayed(env, seed)) for seed in range(10, 40)}
    require(len(readings) > 1, "No observation of whole episodes depends on the seed.")


def _require_own_levels(env: AnyEnv) -> None:
    """Prove that levels neither come back after some seeds nor share one `level_hash`."""
    env.reset(seed=0)
    drawn = {env.state_hash() for _ in range(8) if env.reset() is None}
    require(len(drawn) > 1, "8 resets without a seed gave one level.")
    starts = {seed: start_of(env, seed) for seed in range(PERIOD_SEEDS)}
    hashes = {env.level_hash() for seed in starts if env.reset(seed=seed) is None}
    require(len(hashes) > 1, "All levels have one `level_hash`.")
    for period in PERIODS:
        again = [start_of(env, seed + period) == start for seed, start in starts.items()]
        require(not all(again), f"Levels repeat every {period} seeds.")


def _replayed(env: AnyEnv, seed: int) -> list[dict[str, Any]]:
    env.reset(seed=seed)
    return play(env, mixed_actor(random.Random(0)))


def check_splits(subject: Subject) -> Mapping[str, float]:
    """Levels of different splits differ, whatever the seeds, by their `level_hash`."""
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
            levels[split] = {_level(env, seed) for seed in range(DRAWS[split])}
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
    return {
        f"different levels among {DRAWS[split]} of {split}": len(found)
        for split, found in levels.items()
    }


def check_shortest(subject: Subject) -> None:
    """The oracle solves a level in as many steps as the info `shortest` says, and no one in fewer.

    Steps are those of the info `moves_used` if there is one, else actions or turns: one of them on
    all levels. Policies that do not solve all levels are left out: a guess may be right at once.
    """
    env = subject()
    if "oracle" not in env.scripted_policies:
        raise NotPromised("There is no oracle whose steps could be counted.")
    if _counted(env, LENGTH_SEEDS[0], "oracle") is None:
        raise NotPromised("The oracle's infos say no `shortest` of a solved episode.")
    found = {
        policy: [(policy, seed, _counted(env, seed, policy)) for seed in LENGTH_SEEDS]
        for policy in dict.fromkeys(("oracle", *env.scripted_policies))
    }
    counts = [
        (policy, seed, counted)
        for of_policy in found.values()
        if of_policy[0][0] == "oracle" or all(counted for *_, counted in of_policy)
        for policy, seed, counted in of_policy
        if counted is not None
    ]
    units = {unit for _, _, (_, used) in counts for unit in used}
    faults = {unit: _wrong_length(unit, counts) for unit in sorted(units)}
    require(not all(faults.values()), " ".join(filter(None, faults.values())))


def _wrong_length(unit: str, counts: Sequence[tuple[str, int, tuple[int, dict[str, int]]]]) -> str:
    """How a unit of length contradicts `shortest`, or an empty text."""
    for policy, seed, (shortest, used) in counts:
        if used[unit] < shortest or (policy == "oracle" and used[unit] != shortest):
            return f"Seed {seed}: {policy} solves in {used[unit]} {unit}, `shortest` is {shortest}."
    return ""


def _counted(env: AnyEnv, seed: int, policy: str) -> tuple[int, dict[str, int]] | None:
    """(`shortest`, steps that were needed by unit) of a solved episode that says it."""
    env.reset(seed=seed)
    steps = play(env, scripted_actor(policy, random.Random(seed)))
    infos = [step["info"] for step in steps if "shortest" in step["info"]]
    if not infos or not steps[-1]["info"]["success"]:
        return None
    said = {info["shortest"] for info in infos}
    require(len(said) == 1, f"Seed {seed}: `shortest` changes during an episode: {sorted(said)}.")
    if "moves_used" in infos[-1]:
        return said.pop(), {"moves": infos[-1]["moves_used"]}
    return said.pop(), {"actions": len(steps), "turns": steps[-1]["info"]["turn"] + 1}


def _level(env: AnyEnv, seed: int) -> str:
    env.reset(seed=seed)
    return env.level_hash()
