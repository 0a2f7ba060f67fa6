"""The rules: forks around a table, simultaneous choices, deadlocks; schedules; tables by chance.

Philosopher i of n has fork i on the left and fork i + 1 (modulo n) on the right. Whoever holds both
at the end of a turn eats one meal and puts them back.

Shortest schedules are exact. A schedule in *normal form*: every meal takes two turns in a row, the
first fork being held for both and the second for the latter alone; who begins with a fork releases
it in the first turn, or uses it for a meal within two turns. No schedule is shorter than the
shortest one in normal form:

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

import random
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of

MIN_SEATS, MAX_SEATS = 2, 12
MAX_MEALS = 4
MAX_SIGHT = MAX_SEATS // 2
"""The whole of every table."""

LEFT, RIGHT, RELEASE, WAIT = "left", "right", "release", "wait"
CHOICES = (LEFT, RIGHT, RELEASE, WAIT)
"""Take the left fork, take the right fork, put down what one holds, do nothing."""

FREE = -1


class Table(NamedTuple):
    """Who holds which fork, and who is still hungry."""

    forks: tuple[int, ...]
    """Fork -> number of the philosopher who holds it, `FREE` if it is on the table."""
    hunger: tuple[int, ...]
    """Philosopher -> meals still to eat."""


Choices: TypeAlias = tuple[str, ...]
"""Philosopher -> one of `CHOICES`."""


def fork_of(seat: int, choice: str, seats: int) -> int:
    """The fork that `LEFT` or `RIGHT` is for a philosopher."""
    return seat if choice == LEFT else (seat + 1) % seats


def held(table: Table, seat: int) -> int:
    """How many forks a philosopher holds."""
    return table.forks.count(seat)


def is_possible(table: Table, seat: int, choice: str) -> bool:
    """Whether a choice does what it says: forks are free, or there is something to release.

    A fork for which the neighbour reaches in the same turn is possible to choose; nobody gets it.
    """
    if choice == WAIT:
        return True
    if choice == RELEASE:
        return seat in table.forks
    return table.forks[fork_of(seat, choice, len(table.forks))] == FREE


def after(table: Table, choices: Choices) -> Table:
    """The table after a turn in which all have chosen at the same time.

    A free fork goes to the one philosopher who reaches for it. If both neighbours reach for it,
    neither gets it. Forks that are released in this turn can be taken in the next one.
    """
    seats = len(table.forks)
    # Who reaches for what is gathered first: the order of seats must give nobody a fork.
    reaching: dict[int, list[int]] = {}
    forks = list(table.forks)
    for seat, choice in enumerate(choices):
        if choice == RELEASE:
            forks = [FREE if holder == seat else holder for holder in forks]
        elif choice != WAIT:
            reaching.setdefault(fork_of(seat, choice, seats), []).append(seat)
    for fork, candidates in reaching.items():
        # The table at the start decides: what is released in this turn is not free yet.
        if table.forks[fork] == FREE and len(candidates) == 1:
            forks[fork] = candidates[0]
    hunger = list(table.hunger)
    for seat in range(seats):
        if forks.count(seat) == 2:
            # Who eats without need only loses time, for the forks are back on the table.
            hunger[seat] = max(0, hunger[seat] - 1)
            forks = [FREE if holder == seat else holder for holder in forks]
    return Table(tuple(forks), tuple(hunger))


def is_deadlock(table: Table) -> bool:
    """Whether every philosopher holds one fork, so that nobody can take another."""
    return all(held(table, seat) == 1 for seat in range(len(table.forks)))


def canonical_form(table: Table) -> bytes:
    """What identifies a table up to turning it round and exchanging left and right."""
    seats = len(table.forks)
    images: list[str] = []
    for mirrored in (False, True):
        for shift in range(seats):
            # Seat s becomes `place[s]`; fork f, between seats f - 1 and f, moves with its seats.
            place = [(-s if mirrored else s) + shift for s in range(seats)]
            hunger, forks = [0] * seats, [FREE] * seats
            for seat in range(seats):
                hunger[place[seat] % seats] = table.hunger[seat]
                holder = table.forks[seat]
                to = place[seat] + 1 if mirrored else place[seat]
                forks[to % seats] = holder if holder == FREE else place[holder] % seats
            images.append(f"{hunger} {forks}")
    return min(images).encode()


Hand: TypeAlias = tuple[int, str]
"""A philosopher alone: meals to eat, and the fork held (`LEFT`, `RIGHT`, or "" for none)."""
Masks: TypeAlias = tuple[int, int]
"""Turns in which the left and the right fork are kept from the neighbours, a bit per turn."""
Deeds: TypeAlias = tuple[tuple[int, str], ...]
"""Pairs of turn and choice; in all other turns the philosopher waits."""

_OTHER = {LEFT: RIGHT, RIGHT: LEFT}


@lru_cache(maxsize=65536)
def shortest_schedule(table: Table) -> tuple[Choices, ...] | None:
    """The choices of all, turn by turn, that feed everybody in the fewest turns.

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
    # Upwards from what no schedule can beat: the first number of turns that works is the fewest.
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
    """A lower bound on the turns.

    A meal takes two choices, and each meal of two neighbours the fork between them for a turn. All
    meals together take three turns of forks each, or two with a fork that is held at the start.
    """
    ready = [bool(held and meals) for meals, held in hands]
    own = (2 * meals - has for (meals, _), has in zip(hands, ready, strict=True))
    shared = (hands[seat - 1][0] + meals for seat, (meals, _) in enumerate(hands))
    together = 3 * sum(meals for meals, _ in hands) - sum(ready)
    return max(*own, *shared, -(-together // len(hands)))


def _agreed(hands: list[Hand], turns: int) -> list[Deeds] | None:
    """Plans of all, in the order of hands, that agree within so many turns, if any do."""
    for masks, deeds in _plans(hands[0], turns).items():
        rest = _round(hands, turns, masks[0], 1, masks[1], set())
        if rest is not None:
            return [deeds, *rest]
    return None


def _round(
    hands: list[Hand], turns: int, last: int, place: int, taken: int, failed: set[tuple[int, int]]
) -> list[Deeds] | None:
    """Plans from a place among the hands on.

    The first philosopher keeps the last one from a fork in the turns `last`, and the one before
    keeps this one from the left fork in the turns `taken`. Pairs of place and `taken` that are
    known to lead nowhere are added to `failed`.
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
    # Round a table of twelve the same places come up again with the same forks taken.
    failed.add((place, taken))
    return None


@lru_cache(maxsize=65536)
def _least_taken(hand: Hand, turns: int, taken: int) -> tuple[int, ...]:
    """The least sets of turns in which a philosopher can keep the next one from a fork."""
    least: list[int] = []
    possible = {right for left, right in _plans(hand, turns) if not left & taken}
    # A set that holds another one keeps the neighbour from more and helps nobody.
    for right in sorted(possible, key=int.bit_count):
        if not any(other & right == other for other in least):
            least.append(right)
    return tuple(least)


@lru_cache(maxsize=1024)
def _plans(hand: Hand, turns: int) -> dict[Masks, Deeds]:
    """The plans of a philosopher in normal form that take at most so many turns."""
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


ATTEMPTS = 2_000


class Level(NamedTuple):
    """A table to begin with."""

    start: Table
    """The table at the start; its `hunger` is what everybody needs."""
    shortest: int
    """Turns of a shortest schedule."""


class Request(NamedTuple):
    """Properties of the tables to generate; see the arguments of `DiningEnv` of the same names."""

    philosophers: int
    meals: int
    min_turns: int
    max_turns: int
    sight: int
    split: str | None

    @property
    def to_talk(self) -> int:
        """Turns that it takes until everybody knows the whole table, if all pass on what they hear.

        Words travel `sight` seats a turn.
        """
        return -(-(self.philosophers // 2) // self.sight)

    def checked(self) -> Request:
        """The request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If the values contradict one another.
        """
        plain = self._replace(
            philosophers=check_whole("philosophers", self.philosophers, MIN_SEATS, MAX_SEATS),
            meals=check_whole("meals", self.meals, 1, MAX_MEALS),
            min_turns=check_whole("min_turns", self.min_turns, 1),
            sight=check_whole("sight", self.sight, 1, MAX_SIGHT),
        )
        check_split(self.split)
        if plain.min_turns > plain.max_turns - plain.to_talk:
            raise UnreachableRequest(
                f"no table needs at least min_turns={plain.min_turns} turns and leaves "
                f"{plain.to_talk} of max_turns={plain.max_turns} to talk in, as is needed with "
                f"sight={plain.sight}; lower min_turns, or raise max_turns or sight"
            )
        return plain


def generate(rng: random.Random, request: Request) -> Level:
    """A random table with the properties of a checked request.

    Everybody wants 1 to `meals` meals, not all the same number if there is a choice, and a fork is
    held by one of its neighbours in one case of two. A shortest schedule leaves the turns that it
    takes until everybody knows the table, so that those who know only their part of it can play it.

    Raises:
        UnreachableRequest: If 2,000 tables held none.
    """
    seats = request.philosophers
    for _ in range(ATTEMPTS):
        hunger = tuple(rng.randint(1, request.meals) for _ in range(seats))
        forks = tuple(
            rng.choice((fork, (fork - 1) % seats)) if rng.random() < 0.5 else FREE
            for fork in range(seats)
        )
        table = Table(forks, hunger)
        if any(held(table, seat) == 2 for seat in range(seats)) or is_deadlock(table):
            continue
        if request.meals > 1 and len(set(hunger)) == 1:
            continue
        if request.split is not None and split_of(canonical_form(table)) != request.split:
            continue
        # Last, since it takes longest: all other properties have been looked at by then.
        schedule = shortest_schedule(table)
        turns = 0 if schedule is None else len(schedule)
        if request.min_turns <= turns <= request.max_turns - request.to_talk:
            return Level(table, turns)
    raise UnreachableRequest(
        f"{ATTEMPTS} random tables held none with philosophers={seats}, meals={request.meals}, "
        f"min_turns={request.min_turns}, max_turns={request.max_turns}, sight={request.sight}, "
        f"split={request.split!r}; "
        "lower min_turns, raise max_turns, or change philosophers and meals"
    )
