"""Shortest schedules around the table, computed exactly and with a proof.

A schedule in *normal form*: every meal takes two turns in a row, the first fork being held for
both and the second for the latter alone; who begins with a fork releases it in the first turn, or
uses it for a meal within two turns. No schedule is shorter than the shortest one in normal form:

- A first fork that is taken earlier than in the turn before the meal can be taken then instead,
  for nobody else had it meanwhile; what is taken and not used can be left out.
- A fork that is held from the start, and is neither used within two turns nor released at once,
  keeps others from it in the first turn and later; released in the first turn, and taken again
  before the meal, it does so in no other turns than before.

So all that neighbours have to agree on is, for each fork, the set of turns in which one of them
keeps the other from it, and these must be disjoint. Conversely, plans with disjoint sets can be
played: whoever takes a fork finds it free and is alone in reaching for it. There is no deadlock on
the way, for nobody could take a second fork after it. The search below is for plans that agree,
seat by seat round the table, with the sets as bit masks; it tries 1, 2, 3, ... turns from a lower
bound, and so finds the fewest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

from pettingllms_envs.dining.rules import (
    LEFT,
    RELEASE,
    RIGHT,
    WAIT,
    Choices,
    Table,
    is_deadlock,
)

Hand: TypeAlias = tuple[int, str]
"""A philosopher alone: meals to eat, and the fork held (`LEFT`, `RIGHT`, or "" for none)."""
Masks: TypeAlias = tuple[int, int]
"""Turns in which the left and the right fork are kept from the neighbours, a bit per turn."""
Deeds: TypeAlias = tuple[tuple[int, str], ...]
"""Pairs of turn and choice; in all other turns the philosopher waits."""

_OTHER = {LEFT: RIGHT, RIGHT: LEFT}


@lru_cache(maxsize=65536)
def shortest_schedule(table: Table) -> tuple[Choices, ...] | None:
    """Return the choices of all, turn by turn, that feed everybody in the fewest turns.

    None in a deadlock, which is final; every other table can be served.
    """
    if is_deadlock(table):
        return None
    if not any(table.hunger):
        return ()
    seats = len(table.forks)
    hands = [_hand(table, seat) for seat in range(seats)]
    # Whoever has the fewest plans is the first, for the round is made once for each of them.
    first = min(range(seats), key=lambda seat: table.hunger[seat])
    turns = _lower_bound(hands)
    while (found := _agreed(hands[first:] + hands[:first], turns)) is None:
        turns += 1
    rows = [[WAIT] * turns for _ in hands]
    for place, deeds in enumerate(found):
        for turn, choice in deeds:
            rows[(first + place) % seats][turn] = choice
    return tuple(zip(*rows, strict=True))


def _hand(table: Table, seat: int) -> Hand:
    if table.forks[seat] == seat:
        return table.hunger[seat], LEFT
    right = table.forks[(seat + 1) % len(table.forks)]
    return table.hunger[seat], RIGHT if right == seat else ""


def _lower_bound(hands: list[Hand]) -> int:
    """Return a lower bound on the turns.

    A meal takes two choices, and each meal of two neighbours the fork between them for a turn. All
    meals together take three turns of forks each, or two with a fork that is held at the start.
    """
    ready = [bool(held and meals) for meals, held in hands]
    own = (2 * meals - has for (meals, _), has in zip(hands, ready, strict=True))
    shared = (hands[seat - 1][0] + meals for seat, (meals, _) in enumerate(hands))
    together = 3 * sum(meals for meals, _ in hands) - sum(ready)
    return max(*own, *shared, -(-together // len(hands)))


def _agreed(hands: list[Hand], turns: int) -> list[Deeds] | None:
    """Return plans of all, in the order of hands, that agree within so many turns, if any do."""
    for masks, deeds in _plans(hands[0], turns).items():
        rest = _round(hands, turns, masks[0], 1, masks[1], set())
        if rest is not None:
            return [deeds, *rest]
    return None


def _round(
    hands: list[Hand], turns: int, last: int, place: int, taken: int, failed: set[tuple[int, int]]
) -> list[Deeds] | None:
    """Return plans from a place on.

    Args:
        hands: All hands.
        turns: Turns of a schedule.
        last: Turns in which the first philosopher keeps the last one from a fork.
        place: Place among the hands.
        taken: Turns in which the philosopher before keeps this one from the left fork.
        failed: Pairs of place and turns that are known to lead nowhere; is added to.
    """
    if place == len(hands):
        return None if taken & last else []
    if (place, taken) in failed:
        return None
    for right in _least_taken(hands[place], turns, taken):
        rest = _round(hands, turns, last, place + 1, right, failed)
        if rest is not None:
            plans = _plans(hands[place], turns).items()
            deeds = next(d for (left, r), d in plans if r == right and not left & taken)
            return [deeds, *rest]
    failed.add((place, taken))
    return None


@lru_cache(maxsize=65536)
def _least_taken(hand: Hand, turns: int, taken: int) -> tuple[int, ...]:
    """Return the least sets of turns in which a philosopher can keep the next one from a fork."""
    least: list[int] = []
    possible = {right for left, right in _plans(hand, turns) if not left & taken}
    for right in sorted(possible, key=int.bit_count):
        if not any(other & right == other for other in least):
            least.append(right)
    return tuple(least)


@lru_cache(maxsize=1024)
def _plans(hand: Hand, turns: int) -> dict[Masks, Deeds]:
    """Return the plans of a philosopher in normal form that take at most so many turns."""
    meals, held = hand
    if not held:
        return dict(_meals(meals, 0, turns))
    plans: dict[Masks, Deeds] = {}
    if meals:
        for end in range(min(2, turns)):
            kept = _kept(held, 2 ** (end + 1) - 1, 1 << end)
            plans |= _joined(kept, ((end, _OTHER[held]),), _meals(meals - 1, end + 1, turns))
    if turns:
        plans |= _joined(_kept(held, 1, 0), ((0, RELEASE),), _meals(meals, 1, turns))
    return plans


def _meals(meals: int, start: int, turns: int) -> Iterator[tuple[Masks, Deeds]]:
    """Yield the ways to eat from a turn on, beginning without a fork."""
    if not meals:
        yield (0, 0), ()
        return
    for end in range(start + 1, turns - 2 * (meals - 1)):
        following = dict(_meals(meals - 1, end + 1, turns))
        for side, other in _OTHER.items():
            kept = _kept(side, 3 << (end - 1), 1 << end)
            yield from _joined(kept, ((end - 1, side), (end, other)), following.items()).items()


def _kept(side: str, this: int, other: int) -> Masks:
    return (this, other) if side == LEFT else (other, this)


def _joined(
    kept: Masks, deeds: Deeds, following: Iterable[tuple[Masks, Deeds]]
) -> dict[Masks, Deeds]:
    return {(kept[0] | left, kept[1] | right): deeds + later for (left, right), later in following}
