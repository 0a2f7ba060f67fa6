"""The scripted policies of a philosopher."""

from __future__ import annotations

import random

from pettingllms_envs.dining.rules import (
    CHOICES,
    LEFT,
    RELEASE,
    RIGHT,
    WAIT,
    Table,
    fork_of,
    held,
    is_possible,
    shortest_schedule,
)


def choice_of(table: Table, seat: int, policy: str, rng: random.Random) -> str:
    """Return what a philosopher chooses.

    Args:
        table: The table at the start of the turn.
        seat: The philosopher.
        policy: `"oracle"`: the part of a shortest schedule, the same for all; `"ordered"`: the
            fork with the lower number first, and hold it (no deadlock from an empty table:
            Dijkstra's hierarchy of resources); `"greedy"`: the left fork if it is free, else the
            right one; `"random"`: a possible choice; `"wait"`: nothing, ever.
        rng: Source of chance.
    """
    if policy == "wait":
        return WAIT
    if policy == "random":
        return rng.choice([one for one in CHOICES if is_possible(table, seat, one)])
    if policy == "oracle":
        schedule = shortest_schedule(table)
        return schedule[0][seat] if schedule else WAIT
    if not table.hunger[seat]:
        return RELEASE if held(table, seat) else WAIT
    sides = [LEFT, RIGHT]
    if policy == "ordered":
        sides.sort(key=lambda side: fork_of(seat, side, len(table.forks)))
        if not held(table, seat):
            sides = sides[:1]
    return next((side for side in sides if is_possible(table, seat, side)), WAIT)
