"""The rules: forks around a table, simultaneous choices, deadlocks.

Philosopher i of n has fork i on the left and fork i + 1 (modulo n) on the right. Whoever holds both
at the end of a turn eats one meal and puts them back.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

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
    """Fork -> the philosopher who holds it, `FREE` if it is on the table."""
    hunger: tuple[int, ...]
    """Philosopher -> meals still to eat."""


Choices: TypeAlias = tuple[str, ...]
"""Philosopher -> one of `CHOICES`."""


def fork_of(seat: int, choice: str, seats: int) -> int:
    """Return the fork that `LEFT` or `RIGHT` is for a philosopher."""
    return seat if choice == LEFT else (seat + 1) % seats


def held(table: Table, seat: int) -> int:
    """Return how many forks a philosopher holds."""
    return table.forks.count(seat)


def is_possible(table: Table, seat: int, choice: str) -> bool:
    """Return whether a choice does what it says: forks are free, or there is something to release.

    A fork for which the neighbour reaches in the same turn is possible to choose; nobody gets it.
    """
    if choice == WAIT:
        return True
    if choice == RELEASE:
        return seat in table.forks
    return table.forks[fork_of(seat, choice, len(table.forks))] == FREE


def after(table: Table, choices: Choices) -> Table:
    """Return the table after a turn in which all have chosen at the same time.

    A free fork goes to the one philosopher who reaches for it. If both neighbours reach for it,
    neither gets it. Forks that are released in this turn can be taken in the next one.
    """
    seats = len(table.forks)
    reaching: dict[int, list[int]] = {}
    forks = list(table.forks)
    for seat, choice in enumerate(choices):
        if choice == RELEASE:
            forks = [FREE if holder == seat else holder for holder in forks]
        elif choice != WAIT:
            reaching.setdefault(fork_of(seat, choice, seats), []).append(seat)
    for fork, candidates in reaching.items():
        if table.forks[fork] == FREE and len(candidates) == 1:
            forks[fork] = candidates[0]
    hunger = list(table.hunger)
    for seat in range(seats):
        if forks.count(seat) == 2:
            hunger[seat] = max(0, hunger[seat] - 1)
            forks = [FREE if holder == seat else holder for holder in forks]
    return Table(tuple(forks), tuple(hunger))


def is_deadlock(table: Table) -> bool:
    """Return whether every philosopher holds one fork, so that nobody can take another."""
    return all(held(table, seat) == 1 for seat in range(len(table.forks)))


def canonical_form(table: Table) -> bytes:
    """Return what identifies a table up to turning it round and exchanging left and right."""
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
