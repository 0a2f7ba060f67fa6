"""Tables by chance, each with a shortest schedule, and nothing outside its split."""

from __future__ import annotations

import random
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.splits import check_split, split_of
from pettingllms_envs.dining.rules import (
    FREE,
    MAX_MEALS,
    MAX_SEATS,
    MIN_SEATS,
    Table,
    canonical_form,
    is_deadlock,
    shortest_schedule,
)

ATTEMPTS = 2_000


class Level(NamedTuple):
    """A table to begin with."""

    start: Table
    shortest: int
    """Turns of a shortest schedule."""


class Request(NamedTuple):
    """The properties of the tables to generate."""

    philosophers: int
    meals: int
    min_turns: int
    max_turns: int
    split: str | None

    def checked(self) -> Request:
        """Return the request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If the values contradict one another.
        """
        plain = Request(
            check_whole("philosophers", self.philosophers, MIN_SEATS, MAX_SEATS),
            check_whole("meals", self.meals, 1, MAX_MEALS),
            check_whole("min_turns", self.min_turns, 1),
            self.max_turns,
            self.split,
        )
        check_split(self.split)
        if plain.min_turns > plain.max_turns:
            raise UnreachableRequest(
                f"no table needs at least min_turns={plain.min_turns} turns and can be served in "
                f"max_turns={plain.max_turns}; lower the first or raise the second"
            )
        return plain


def generate(rng: random.Random, request: Request) -> Level:
    """Return a random table with the requested properties.

    Everybody wants 0 to `meals` meals, and a fork is held by one of its neighbours in one case of
    four. The certificate is a shortest schedule, found by A*.

    Args:
        rng: The only source of chance.
        request: A checked request.

    Raises:
        UnreachableRequest: If 2,000 tables held none.
    """
    seats = request.philosophers
    for _ in range(ATTEMPTS):
        hunger = tuple(rng.randint(0, request.meals) for _ in range(seats))
        forks = tuple(
            rng.choice((fork, (fork - 1) % seats)) if rng.random() < 0.25 else FREE
            for fork in range(seats)
        )
        table = Table(forks, hunger)
        # Nobody begins with both forks, and two hungry neighbours have to agree on a fork.
        if any(forks.count(seat) == 2 for seat in range(seats)) or is_deadlock(table):
            continue
        if not any(hunger[seat] and hunger[seat - 1] for seat in range(seats)):
            continue
        if request.split is not None and split_of(canonical_form(table)) != request.split:
            continue
        schedule = shortest_schedule(table)
        if schedule is not None and request.min_turns <= len(schedule) <= request.max_turns:
            return Level(table, len(schedule))
    raise UnreachableRequest(
        f"{ATTEMPTS} random tables held none with philosophers={seats}, meals={request.meals}, "
        f"min_turns={request.min_turns}, max_turns={request.max_turns}, split={request.split!r}; "
        "lower min_turns, raise max_turns, or change philosophers and meals"
    )
