"""Shortest schedules against a search with all choices, and against themselves at full size."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_envs.dining.rules import (
    CHOICES,
    FREE,
    LEFT,
    RELEASE,
    Request,
    Table,
    after,
    generate,
    held,
    is_deadlock,
    is_possible,
    shortest_schedule,
)


def every_table(seats, meals):
    holders = [(FREE, fork, (fork - 1) % seats) for fork in range(seats)]
    for forks in product(*holders):
        if all(forks.count(seat) < 2 for seat in range(seats)):
            for hunger in product(range(meals + 1), repeat=seats):
                yield Table(forks, hunger)


@pytest.mark.parametrize(
    ("seats", "meals"),
    [
        (2, 3),
        (3, 2),
        (4, 1),
        pytest.param(3, 4, marks=pytest.mark.nightly),
        pytest.param(4, 2, marks=pytest.mark.nightly),
    ],
)
def test_schedules_are_shortest(seats, meals):
    """Backwards from all tables at which everybody has eaten, with all choices of all."""
    every = list(every_table(seats, meals))
    following = {
        table: {after(table, choices) for choices in product(CHOICES, repeat=seats)}
        for table in every
        if not is_deadlock(table)
    }
    fewest = {table: 0 for table in every if not any(table.hunger)}
    turns = 0
    while True:
        turns += 1
        open_tables = [table for table in following if table not in fewest]
        new = [t for t in open_tables if any(fewest.get(n) == turns - 1 for n in following[t])]
        if not new:
            break
        fewest |= dict.fromkeys(new, turns)
    for table in every:
        schedule = shortest_schedule(table)
        if is_deadlock(table):
            assert schedule is None
        else:
            assert len(schedule) == fewest[table]


def served(table, schedule):
    """Play a schedule, and return the tables after its turns."""
    tables = []
    for choices in schedule:
        assert all(is_possible(table, seat, choice) for seat, choice in enumerate(choices))
        table = after(table, choices)
        assert not is_deadlock(table)
        tables.append(table)
    return tables


@pytest.mark.parametrize("seats", [2, 5, 8, 11, 12])
def test_schedules_can_be_played_and_each_turn_is_one_less(seats):
    rng = random.Random(seats)
    for _ in range(4):
        table = generate(rng, Request(seats, 4, 2, 40, 6, None)).start
        schedule = shortest_schedule(table)
        tables = served(table, schedule)
        assert not any(tables[-1].hunger)
        lengths = [len(shortest_schedule(one)) for one in tables]
        assert lengths == list(reversed(range(len(schedule))))


@settings(max_examples=30, deadline=None)
@given(seats=st.integers(6, 12), seed=st.integers(0, 999), data=st.data())
def test_no_turn_saves_more_than_one(seats, seed, data):
    """What a shortest schedule is, checked locally where no search with all choices can go."""
    table = generate(random.Random(seed), Request(seats, 3, 2, 40, 6, None)).start
    choices = data.draw(st.tuples(*[st.sampled_from(CHOICES)] * seats))
    following = after(table, choices)
    if not is_deadlock(following):
        assert len(shortest_schedule(following)) >= len(shortest_schedule(table)) - 1


@pytest.mark.parametrize("seats", [2, 3, 6, 12])
def test_deadlock_can_be_reached_and_avoided_at_every_table(seats):
    for seed in range(4):
        table = generate(random.Random(seed), Request(seats, 4, 2, 40, 6, None)).start
        down = tuple(RELEASE if held(table, seat) else "wait" for seat in range(seats))
        stuck = after(after(table, down), (LEFT,) * seats)
        assert is_deadlock(stuck)
        assert shortest_schedule(stuck) is None
        assert shortest_schedule(table) is not None
