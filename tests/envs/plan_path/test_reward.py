"""Rewards: the table holds, and there is nothing to farm."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms.testing import HOSTILE_TEXTS
from pettingllms_envs.plan_path.rules import maze_of
from pettingllms_envs.planning.env import moves_json
from pettingllms_envs.team_table import TEAMS

LEVEL = "P...\n.##.\n...G"
EPSILON = 1e-9
OPPOSITE = {"U": "D", "D": "U", "L": "R", "R": "L"}


def make(**kwargs):
    return pettingllms.make("plan_path_v0", checks=False, **{"tool": "call", **kwargs})


def play(env, player, seed=0, level=None):
    """Play an episode; agent -> return, list of (agent, team, local), success."""
    env.reset(seed=seed, options={"level": level} if level else None)
    returns, parts = dict.fromkeys(env.possible_agents, 0.0), []
    decider = env.possible_agents[-1]
    while not (env.terminations[decider] or env.truncations[decider]):
        agent = env.agent_selection
        env.step(player(env, agent))
        for other, reward in env.rewards.items():
            returns[other] += reward
        found = env.infos[agent]["reward_parts"]
        parts.append((agent, found["team"], found["local"]))
    return returns, parts, env.infos[decider]["success"]


def scripted(*texts):
    left = list(texts)
    return lambda env, agent: left.pop(0) if left else ""


@pytest.mark.parametrize(
    ("text", "team", "local"),
    [
        ('["R"]', 0.1 / 5, 0),
        ('["R","L"]', 0, -0.04 / 4),
        ('["R","R","L"]', 0.1 / 5, 0),
        ('["U","L","D"]', 0.1 / 5, -2 * 0.04 / 20),
        ('["U","U","U","U","U","U"]', 0, -0.04 / 4),
        ("[]", 0, -0.04 / 4),
        ("nothing", 0, -0.05 / 4),
        ("", 0, -0.05 / 4),
        ('["D","D","R","R","R"]', 0.1 + 1, 0),
    ],
)
def test_the_table_for_executed_and_for_proposed_moves(text, team, local):
    _, parts, success = play(make(team="single", moves_per_turn=5), scripted(text), level=LEVEL)
    assert parts[0] == ("planner_0", pytest.approx(team), pytest.approx(local))
    if success:
        team -= 1
    _, parts, _ = play(make(team="proposer-planner", moves_per_turn=5), scripted(text), level=LEVEL)
    assert parts[0] == ("proposer_0", pytest.approx(team), pytest.approx(local))
    assert parts[1][1] == pytest.approx(-team)


@pytest.mark.parametrize(
    ("text", "team", "local"),
    [
        ("path(0, 1)", 0.1 / 5, 0),
        ("path(2, 3)", 0.1, 0),
        ("path(1, 1)", 0, -0.04 / 4),
        ("path(9, 9)", 0, -0.04 / 4),
        ("path(0, 0)", 0, -0.04 / 4),
        ("distance(2, 3)", 0, 0),
        ("neighbours(0, 0)", 0, 0),
        ("go there", 0, -0.05 / 4),
    ],
)
def test_the_table_for_tool_calls(text, team, local):
    _, parts, _ = play(make(), scripted(text, "U"), level=LEVEL)
    assert parts[0] == ("tool_0", pytest.approx(team), pytest.approx(local))


def test_moving_away_loses_what_coming_back_gains():
    env = make(team="single")
    level = ".P..\n.##.\n...G"
    _, parts, _ = play(env, scripted('["L"]', '["R"]'), level=level)
    assert [team for _, team, _ in parts[:2]] == [pytest.approx(-0.002), pytest.approx(0.002)]


@pytest.mark.parametrize("team", [team for team in TEAMS if team != "single-tool"])
@given(moves=st.text("UDLR", min_size=1, max_size=8), seed=st.integers(0, 50), data=st.data())
def test_closed_loops_never_pay(team, moves, seed, data):
    """Whatever is walked and proposed, being back where one was has paid exactly nothing."""
    env = make(team=team, size=6, max_turns=8)
    env.reset(seed=seed)
    start = env.state()
    proposals = st.sampled_from(["path(0, 0)", "path(3, 3)", "RRDD", "[U]", "", "distance(1, 1)"])
    paid = {"team": 0.0, "local": 0.0}

    def step(text):
        agent = env.agent_selection
        env.step(text)
        for part, value in env.infos[agent]["reward_parts"].items():
            paid[part] += value
        return env.infos[agent]

    def turn(text):
        if len(env.possible_agents) == 2:
            step(data.draw(proposals))
        return step(text)

    walked = turn(moves_json(moves))
    if walked["success"]:
        return
    back = "".join(OPPOSITE[move] for move in reversed(walked["executed"]))
    for at in range(0, len(back), 3):
        if turn(moves_json(back[at : at + 3]))["success"]:
            return
    assert env.state().position == start.position
    assert paid["team"] == pytest.approx(0, abs=EPSILON)
    assert paid["local"] <= 0


def mixed_actor(rng):
    def player(env, agent):
        kind = rng.random()
        if kind < 0.5:
            return env.scripted_action(agent, rng.choice(env.scripted_policies), rng)
        if kind < 0.7:
            return moves_json("".join(rng.choices("UDLR", k=rng.randrange(20))))
        if kind < 0.8:
            return f"path({rng.randrange(-1, 9)}, {rng.randrange(-1, 9)})"
        return rng.choice(HOSTILE_TEXTS)

    return player


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("max_turns", [1, 4, 9])
def test_bounds_and_order_of_returns(team, max_turns):
    rng = random.Random(5)
    env = make(team=team, max_turns=max_turns, moves_per_turn=6, size=7)
    outcomes = set()
    for seed in range(150):
        returns, parts, success = play(env, mixed_actor(rng), seed)
        level, state = env.state().level, env.state()
        progress = maze_of(level).outlook(state.position).potential
        assert sum(part for _, part, _ in parts) == pytest.approx(progress + success)
        for agent, total in returns.items():
            local = sum(cost for other, _, cost in parts if other == agent)
            assert -0.05 - EPSILON < local <= 0
            assert total == pytest.approx(progress + success + local)
            assert total >= 1.05 - EPSILON if success else total < 0.1
        assert all(-0.11 - EPSILON <= part <= 1.11 + EPSILON for _, part, _ in parts)
        assert all(-0.05 / max_turns - EPSILON <= cost <= 0 for _, _, cost in parts)
        assert success == (state.position == level.goal)
        outcomes.add(success)
    assert outcomes == {False, True}
