"""The dining philosophers: rules against plain references, schedules, texts, rewards, endings."""

import random
import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms.testing import play
from pettingllms.testing.play import mixed_actor
from pettingllms_envs.dining.env import (
    MAX_MESSAGE,
    Utterance,
    heard,
    parse_level,
    table_compact,
    table_text,
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
    is_deadlock,
    shortest_schedule,
)


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


@settings(max_examples=30)
@given(seats=st.integers(6, 12), seed=st.integers(0, 999), data=st.data())
def test_no_turn_saves_more_than_one(seats, seed, data):
    """What a shortest schedule is, checked locally where no search with all choices can go."""
    table = generate(random.Random(seed), Request(seats, 3, 2, 40, 6, None)).start
    choices = data.draw(st.tuples(*[st.sampled_from(CHOICES)] * seats))
    following = after(table, choices)
    if not is_deadlock(following):
        assert len(shortest_schedule(following)) >= len(shortest_schedule(table)) - 1


LEVEL = "1 1 1 / . . ."


def started(level=LEVEL, **kwargs):
    kwargs = {"philosophers": 3, "max_turns": 10} | kwargs
    env = pettingllms.make("dining_v0", checks=False, **kwargs)
    env.reset(seed=0, options={"level": level})
    return env


def turn(env, *texts):
    for text in texts:
        env.step(text)


def test_a_deadlock_ends_the_episode_and_costs():
    env = started()
    turn(env, *["#### left"] * 3)
    info = env.infos["philosopher_2"]
    assert all(env.terminations.values())
    assert not info["success"]
    assert info["deadlock"]
    assert info["distance"] == -1
    assert info["reward_parts"]["team"] == pytest.approx(-0.01)


def test_infos_are_about_the_table_after_the_turn():
    for seed in range(8):
        env = pettingllms.make("dining_v0", checks=False, philosophers=4, split=None)
        env.reset(seed=seed)
        rng = random.Random(seed)
        while not any(env.terminations.values()) and env.turn < env.max_turns:
            for agent in env.possible_agents:
                env.step(env.scripted_action(agent, "greedy", rng))
            table = env.state().table
            schedule = shortest_schedule(table)
            for info in env.infos.values():
                assert info["deadlock"] == is_deadlock(table)
                assert info["distance"] == (-1 if schedule is None else len(schedule))
                assert info["meals_left"] == sum(table.hunger)


def returned(env, player):
    totals = dict.fromkeys(env.possible_agents, 0.0)
    for step in play(env, player):
        for agent, reward in step["rewards"].items():
            totals[agent] += reward
    return totals.values()


def test_doing_nothing_pays_less_than_anything_else():
    """The reward of arXiv 2606.07845 has a maximum at zero actions; this one has its minimum."""
    nothing = max(returned(started(), lambda env, agent: "#### wait"))
    assert nothing == pytest.approx(-0.02)
    assert min(returned(started(), lambda env, agent: "#### left")) > nothing
    assert max(returned(started(), lambda env, agent: "")) < nothing
    holding = [
        lambda env, agent: "#### left" if agent == "philosopher_0" else "#### wait",
        lambda env, agent: (
            "#### release"
            if env.turn % 2
            else "#### left"
            if agent < "philosopher_2"
            else "#### wait"
        ),
    ]
    for player in holding:
        assert max(returned(started(), player)) < -0.01


def test_time_that_is_too_short_is_a_lost_level():
    env = started(max_turns=4)
    needed = env.state().level.shortest
    assert needed == 4
    turn(env, *["#### wait"] * 3)
    assert env.infos["philosopher_2"]["reward_parts"]["team"] == pytest.approx(-0.02)
    turn(env, *["#### wait"] * 3)
    assert env.infos["philosopher_2"]["reward_parts"]["team"] == 0


def test_team_parts_add_up_to_the_potential_of_the_end():
    env = pettingllms.make("dining_v0", checks=False)
    for seed in range(30):
        env.reset(seed=seed)
        steps = play(env, mixed_actor(random.Random(seed)))
        total = sum(step["info"]["reward_parts"]["team"] for step in steps)
        info = steps[-1]["info"]
        lost = -0.01 if info["deadlock"] else -0.02
        assert total == pytest.approx(1.1 if info["success"] else lost)


@pytest.mark.parametrize(
    ("level", "text", "cost"),
    [
        (LEVEL, "#### left", 0),
        (LEVEL, "#### wait", 0),
        (LEVEL, "#### wait say", 0),
        (LEVEL, "#### wait say hi", 0.01),
        (LEVEL, "#### release", 0.04),
        (LEVEL, "#### release say hi", 0.05),
        (LEVEL, "nothing", 0.05),
        ("1 1 1 / 2 . .", "#### left", 0.04),
        ("0 1 1 / . . .", "#### wait", 0),
        ("0 1 1 / 0 . .", "#### release", 0),
    ],
)
def test_local_parts(level, text, cost):
    env = started(level)
    env.step(text)
    local = env.infos["philosopher_0"]["reward_parts"]["local"]
    assert local == pytest.approx(-cost / env.max_turns)


def test_messages_are_read_from_the_next_turn_on_within_sight():
    env = started("1 1 1 1 1 1 / . . . . . .", philosophers=6, sight=2)
    told = 'said in turn 1: "I need 1 now left"'
    turn(env, '#### wait say I need 1\u2028"now" {left}', "#### wait")
    assert all(told not in env.observe(agent) for agent in env.possible_agents)
    turn(env, *["#### wait"] * 4)
    hears = [told in env.observe(agent) for agent in env.possible_agents]
    assert hears == [True, True, True, False, True, True]
    assert env.infos["philosopher_0"]["message"] == "I need 1 now left"
    turn(env, *["#### wait"] * 6)
    assert told in env.observe("philosopher_1")  # the latest words stay
    assert "up to 2 places away read it" in env.observe("philosopher_1")


def test_what_was_said_is_no_part_of_the_key():
    quiet, loud = started(), started()
    turn(quiet, *["#### wait"] * 3)
    turn(loud, *["#### wait say I need 4"] * 3)
    assert quiet.state_key() == loud.state_key()
    assert quiet.state_hash() != loud.state_hash()


def solved(env, player, num_levels):
    total = 0
    for seed in range(num_levels):
        env.reset(seed=seed)
        total += play(env, player(seed))[-1]["info"]["success"]
    return total


def relaying(seed):
    """Say all that is known of needs and forks; once all is, follow the plan without looking."""
    moment = []

    def actor(env, agent):
        seat, rounds = int(agent.rpartition("_")[2]), env._request.to_talk
        if seat == 0:
            moment[:] = [env.state()]
        (state,) = moment
        sides = {state.table.forks[seat]: "L", state.table.forks[(seat + 1) % len(state.said)]: "R"}
        known = {seat: f"{state.level.start.hunger[seat]}{sides.get(seat, 'N')}"}
        for other in within(seat, env._request.sight, len(state.said)):
            known |= dict(re.findall(r"(\d+):(\d[LRN])", state.said[other].text))
        known = {int(one): known[one] for one in known}
        if env.turn < rounds:
            return "#### wait say " + "".join(f"{one}:{sign}" for one, sign in known.items())
        hunger = tuple(int(known[one][0]) for one in range(len(state.said)))
        forks = [FREE] * len(hunger)
        for one, sign in known.items():
            if sign[1] != "N":
                forks[(one + (sign[1] == "R")) % len(forks)] = one
        plan = shortest_schedule(Table(tuple(forks), hunger))
        return f"#### {plan[env.turn - rounds][seat]}"

    return actor


@pytest.mark.parametrize("level", ["medium", "expert", "extreme"])
def test_every_level_can_be_solved_by_words_that_are_passed_on(level):
    env = pettingllms.make("dining_v0", checks=False, difficulty=level)
    assert solved(env, relaying, 3) == 3


def test_other_tables_are_refused():
    with pytest.raises(InvalidArgument, match="4 philosophers with up to 1 meal in 4 turns"):
        started("1 1 1 1 / . . . .")
    with pytest.raises(InvalidArgument, match="at most 3 turns"):
        pettingllms.make("dining_v0", philosophers=3, max_turns=3, levels=[LEVEL])
    with pytest.raises(InvalidArgument, match="with up to 1 meal"):
        started("2 1 1 / . . .", meals=1)


def test_terse_prompts_get_letters():
    user = "{seat}{need_compact}{table_compact}"
    env = started("1 2 1 / . . .", prompts={"philosopher": {"system": "", "user": user}})
    assert env.observe("philosopher_1") == "120..0..0.."
    assert env.scripted_action("philosopher_0", "greedy", random.Random(0)) == "L"
    assert env.scripted_action("philosopher_1", "talk", random.Random(0)) == "W2"
    turn(env, "W1", "W2", "W1")
    assert env.observe("philosopher_1") == "120.20.10.1"
