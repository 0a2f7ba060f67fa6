"""Simultaneous choices, deadlocks, canonical forms, levels and texts against plain references."""

import json
import random
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument, LevelFormatError, UnreachableRequest
from pettingllms.seeding import SPLITS, split_of
from pettingllms_envs.dining.env import (
    MAX_MESSAGE,
    Move,
    Utterance,
    heard,
    level_text,
    parse_level,
    parse_levels,
    read_move,
    table_compact,
    table_text,
    terse,
    within,
)
from pettingllms_envs.dining.rules import (
    CHOICES,
    FREE,
    LEFT,
    RELEASE,
    RIGHT,
    Request,
    Table,
    after,
    canonical_form,
    generate,
    shortest_schedule,
)

CASES = json.loads(Path(__file__).with_name("levels.json").read_text("utf-8"))


@st.composite
def tables(draw, seats=None, meals=2):
    seats = seats or draw(st.integers(2, 6))
    hunger = draw(st.lists(st.integers(0, meals), min_size=seats, max_size=seats))
    sides = draw(st.lists(st.sampled_from(".lr"), min_size=seats, max_size=seats))
    forks = [FREE] * seats
    for fork, side in enumerate(sides):
        holder = fork if side == "l" else (fork - 1) % seats
        if side != "." and holder not in forks:
            forks[fork] = holder
    return Table(tuple(forks), tuple(hunger))


def choices_for(table):
    return st.tuples(*[st.sampled_from(CHOICES)] * len(table.forks))


def served(table, choices):
    """The rule once more: the hands of everybody, as sets of forks."""
    seats = len(table.forks)
    hands = [{fork for fork in range(seats) if table.forks[fork] == seat} for seat in range(seats)]
    wanted = {}
    for seat, choice in enumerate(choices):
        if choice == LEFT:
            wanted[seat] = seat
        elif choice == RIGHT:
            wanted[seat] = (seat + 1) % seats
    got = {
        seat: fork
        for seat, fork in wanted.items()
        if table.forks[fork] == FREE and list(wanted.values()).count(fork) == 1
    }
    hunger = list(table.hunger)
    for seat, choice in enumerate(choices):
        if choice == RELEASE:
            hands[seat] = set()
        if seat in got:
            hands[seat].add(got[seat])
        if len(hands[seat]) == 2:
            hands[seat] = set()
            hunger[seat] = max(hunger[seat] - 1, 0)
    forks = [next((s for s in range(seats) if f in hands[s]), FREE) for f in range(seats)]
    return Table(tuple(forks), tuple(hunger))


@given(data=st.data(), table=tables())
def test_turns_are_those_of_the_plain_rule(data, table):
    choices = data.draw(choices_for(table))
    assert after(table, choices) == served(table, choices)


@given(data=st.data(), table=tables())
def test_turning_and_mirroring_change_neither_form_nor_course(data, table):
    """A turned table has the same canonical form, and so has what happens at it."""
    seats = len(table.forks)
    shift, choices = data.draw(st.integers(0, seats - 1)), data.draw(choices_for(table))

    def turned(one):
        forks, hunger = [FREE] * seats, [0] * seats
        for seat in range(seats):
            hunger[(seat + shift) % seats] = one.hunger[seat]
            holder = one.forks[seat]
            forks[(seat + shift) % seats] = holder if holder == FREE else (holder + shift) % seats
        return Table(tuple(forks), tuple(hunger))

    def mirrored(one):
        forks, hunger = [FREE] * seats, [0] * seats
        for seat in range(seats):
            hunger[-seat % seats] = one.hunger[seat]
            holder = one.forks[seat]
            forks[(1 - seat) % seats] = holder if holder == FREE else -holder % seats
        return Table(tuple(forks), tuple(hunger))

    turned_choices = tuple(choices[(seat - shift) % seats] for seat in range(seats))
    exchanged = {LEFT: RIGHT, RIGHT: LEFT}
    mirrored_choices = tuple(
        exchanged.get(choices[-seat % seats], choices[-seat % seats]) for seat in range(seats)
    )
    assert canonical_form(turned(table)) == canonical_form(mirrored(table)) == canonical_form(table)
    following = after(table, choices)
    assert after(turned(table), turned_choices) == turned(following)
    assert after(mirrored(table), mirrored_choices) == mirrored(following)


def test_canonical_forms_of_different_tables_differ():
    tables = {canonical_form(Table((FREE,) * 4, h)) for h in product((0, 1), repeat=4)}
    assert len(tables) == 6  # necklaces of four beads in two colours, up to reflection
    assert canonical_form(Table((0, FREE, FREE), (1, 0, 0))) != canonical_form(
        Table((FREE, 0, FREE), (0, 1, 0))
    )


@pytest.mark.parametrize("split", SPLITS)
def test_generated_tables_keep_their_request(split):
    request = Request(7, 3, 6, 10, 2, split).checked()
    for seed in range(20):
        level = generate(random.Random(seed), request)
        assert 6 <= level.shortest == len(shortest_schedule(level.start)) <= 10 - 2
        assert 0 < min(level.start.hunger) < max(level.start.hunger) <= 3
        assert split_of(canonical_form(level.start)) == split
        assert parse_level(level_text(level.start)) == level


def test_requests_that_cannot_be_met_are_refused():
    with pytest.raises(UnreachableRequest, match=r"min_turns=9 .* leaves 1 of max_turns=9 to talk"):
        Request(3, 1, 9, 9, 6, None).checked()
    with pytest.raises(UnreachableRequest, match=r"leaves 3 of max_turns=9 .* sight=2"):
        Request(11, 1, 7, 9, 2, None).checked()
    with pytest.raises(InvalidArgument, match="invalid philosophers: got 1; allowed: an integer"):
        Request(1, 1, 1, 8, 6, None).checked()
    with pytest.raises(InvalidArgument, match="invalid sight: got 7"):
        Request(12, 1, 1, 8, 7, None).checked()
    with pytest.raises(UnreachableRequest, match="2000 random tables held none"):
        generate(random.Random(0), Request(3, 1, 8, 9, 6, None))


@pytest.mark.parametrize(("text", "problem"), CASES["levels"])
def test_level_texts(text, problem):
    if problem is None:
        assert parse_level(text).start == Table((FREE,) * 3, (1, 1, 1))
        return
    with pytest.raises(LevelFormatError, match=problem):
        parse_level(text)


def test_files_hold_one_level_per_line():
    assert len(parse_levels("1 1 1 / . . .\n\n1 2 1 / . 0 .\n")) == 2
    with pytest.raises(LevelFormatError, match="line 2"):
        parse_levels("1 1 1 / . . .\n1 1 / . . .")
    with pytest.raises(LevelFormatError, match="holds no level"):
        parse_levels("")


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(
    "text", ["#### {}", "{}", "so\n#### {}.", '#### ["{}"]', "#### My choice: {}"]
)
def test_choices_are_read(choice, text):
    assert read_move(text.format(choice)) == Move(choice)
    assert read_move(text.format(choice.upper())) == Move(choice)
    assert read_move(terse(Move(choice))) == Move(choice)
    assert read_move(terse(Move(choice, "I need 3"))) == Move(choice, "3")


SAID = (Utterance(0), Utterance(2, "I need 2"), Utterance(0))


def test_only_what_is_in_sight_is_shown():
    table = parse_level("1 0 2 / . 0 .").start
    shown = table_text(table, (0, 3, 0), SAID, [2, 1, 0]).split("\n")
    assert shown == [
        "philosopher 0: has eaten 0, holds the right fork",
        'philosopher 1: has eaten 3, holds no fork, said in turn 2: "I need 2"',
        "philosopher 2: has eaten 0, holds no fork",
        "Free forks: 0, 2",
    ]
    assert table_text(table, (0, 3, 0), SAID, [1]).split("\n") == [shown[1], "Free forks: 2"]
    assert table_compact(table, (0, 3, 0), SAID, [1, 2, 0]) == "3.20..0R."


@given(seats=st.integers(2, 12), sight=st.integers(1, 6), data=st.data())
def test_sight_is_as_far_to_the_left_as_to_the_right(seats, sight, data):
    seat = data.draw(st.integers(0, seats - 1))
    steps = range(-sight, sight + 1)
    seen = within(seat, sight, seats)
    assert seen[0] == seat
    assert sorted(seen) == sorted({(seat + step) % seats for step in steps})


@given(said=st.text(st.characters() | st.sampled_from("\n\"'#<|{}>[]`*_\u2028"), max_size=400))
def test_messages_stay_within_their_quotation(said):
    """One line, cut, and without the signs that prompts, chats and answers are made with."""
    message = heard(said)
    assert len(message) <= MAX_MESSAGE
    assert not set(message) & set('\n\r"#<|>[]{}`*\u2028\u2029\u201c\u201d')
    assert heard(message) == message
