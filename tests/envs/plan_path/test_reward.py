"""Rewards: the table holds, and there is nothing to farm."""

import pytest

import pettingllms

LEVEL = "P...\n.##.\n...G"


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
