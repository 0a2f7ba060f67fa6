"""Tables by chance, each with a shortest schedule, and nothing outside its split."""

from __future__ import annotations

import random
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.dining.rules import (
    FREE,
    MAX_MEALS,
    MAX_SEATS,
    MAX_SIGHT,
    MIN_SEATS,
    Table,
    canonical_form,
    held,
    is_deadlock,
)
from pettingllms_envs.dining.schedule import shortest_schedule

ATTEMPTS = 2_000


class Level(NamedTuple):
    """A table to begin with."""

    start: Table
    """Its `hunger` is what everybody needs."""
    shortest: int
    """Turns of a shortest schedule."""


class Request(NamedTuple):
    """The properties of the tables to generate."""

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
            check_whole("sight", self.sight, 1, MAX_SIGHT),
            self.split,
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
    """Return a random table with the requested properties.

    Everybody wants 1 to `meals` meals, not all the same number if there is a choice, and a fork is
    held by one of its neighbours in one case of two. A shortest schedule leaves the turns that it
    takes until everybody knows the table, so that those who know only their part of it can play it.

    Args:
        rng: The only source of chance.
        request: A checked request.

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
