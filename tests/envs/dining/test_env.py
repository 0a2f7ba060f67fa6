"""The environment: simultaneous actions, rewards, endings, prompts."""

import random
import re

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms.testing import play
from pettingllms.testing.play import mixed_actor, scripted_actor
from pettingllms_envs.dining.env import within
from pettingllms_envs.dining.rules import FREE, Table, is_deadlock, shortest_schedule

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
    for seed in range(40):
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


@pytest.mark.parametrize("level", ["medium", "hard"])
def test_talk_solves_what_fixed_turns_do_not(level):
    """Words are worth their price: nobody knows more than what is seen and said."""
    env = pettingllms.make("dining_v0", checks=False, difficulty=level)

    def scripted(policy):
        return lambda seed: scripted_actor(policy, random.Random(seed))

    assert solved(env, scripted("talk"), 12) == 12
    assert solved(env, scripted("alternate"), 12) < 12


@pytest.mark.parametrize("split", ["validation", "test"])
def test_there_are_thousands_of_levels_from_medium_on(split):
    """Of 250 draws from 2,000 equally likely levels 14.5 repeat another one."""
    env = pettingllms.make("dining_v0", checks=False, difficulty="medium", split=split)
    found = set()
    for seed in range(250):
        env.reset(seed=seed)
        found.add(env.level_hash())
    assert len(found) >= 236


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
    with pytest.raises(InvalidArgument, match="with up to 1 meals"):
        started("2 1 1 / . . .", meals=1)


def test_terse_prompts_get_letters():
    user = "{seat}{need_compact}{table_compact}"
    env = started("1 2 1 / . . .", prompts={"philosopher": {"system": "", "user": user}})
    assert env.observe("philosopher_1") == "120..0..0.."
    assert env.scripted_action("philosopher_0", "greedy", random.Random(0)) == "L"
    assert env.scripted_action("philosopher_1", "talk", random.Random(0)) == "W2"
    turn(env, "W1", "W2", "W1")
    assert env.observe("philosopher_1") == "120.20.10.1"
