"""The scripted policies of a philosopher."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from pettingllms_envs.dining.rules import (
    CHOICES,
    LEFT,
    RELEASE,
    RIGHT,
    WAIT,
    Table,
    held,
    is_possible,
)
from pettingllms_envs.dining.schedule import shortest_schedule

_NEED = re.compile(r"(?:I need )?(\d{1,2})")


def choice_of(table: Table, turn: int, seat: int, policy: str, rng: random.Random) -> str:
    """Return what a philosopher chooses who does not talk.

    Args:
        table: The table at the start of the turn.
        turn: Number of the turn, from 0.
        seat: The philosopher.
        policy: `"oracle"`: the part of a shortest schedule, the same for all; `"alternate"`: even
            and odd seats eat in turns of two, the last seat of an odd number in a third one (no
            deadlock and no conflict, but much waiting if needs differ); `"greedy"`: the left fork
            if it is free, else the right one; `"random"`: a possible choice; `"wait"`: nothing.
        rng: Source of chance.
    """
    if policy == "wait":
        return WAIT
    if policy == "random":
        return rng.choice([one for one in CHOICES if is_possible(table, seat, one)])
    if policy == "oracle":
        schedule = shortest_schedule(table)
        return schedule[0][seat] if schedule else WAIT
    is_mine = policy == "greedy" or _is_turn_of(seat, turn, len(table.forks))
    if not table.hunger[seat] or not is_mine:
        return RELEASE if held(table, seat) else WAIT
    return next((side for side in (LEFT, RIGHT) if is_possible(table, seat, side)), WAIT)


def _is_turn_of(seat: int, turn: int, seats: int) -> bool:
    is_odd_one = seats % 2 and seat == seats - 1
    return turn // 2 % (2 + seats % 2) == (2 if is_odd_one else seat % 2)


def talk(
    table: Table, turn: int, eaten: Sequence[int], seat: int, heard: Mapping[int, str]
) -> tuple[str, str]:
    """Return choice and message of a philosopher who says the own need and waits for the others'.

    Once all have said theirs, all know the same table and follow the same shortest schedule. Who
    does not hear from everybody plays `"alternate"` after the first words.

    Args:
        table: The table at the start of the turn; of its `hunger` only the own one is read.
        turn: Number of the turn, from 0.
        eaten: Meals that each has eaten.
        seat: The philosopher.
        heard: Philosophers within sight, the own one included -> the latest message.
    """
    said = {other: _NEED.fullmatch(text) for other, text in heard.items()}
    known = {other: int(found[1]) - eaten[other] for other, found in said.items() if found}
    if known.get(seat) != table.hunger[seat]:
        return WAIT, f"I need {eaten[seat] + table.hunger[seat]}"
    hunger, policy = table.hunger, "alternate"
    if len(known) == len(hunger):
        hunger, policy = tuple(max(0, known[other]) for other in range(len(known))), "oracle"
    return choice_of(Table(table.forks, hunger), turn, seat, policy, random.Random(0)), ""
