"""`team="single-tool"`: what the tool agent finds is played as the planner's list would be."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.testing import play
from pettingllms.testing.play import mixed_actor
from pettingllms_envs.plan_path.rules import maze_of, shortest_path
from pettingllms_envs.planning.env import moves_json

MOVES = st.lists(st.sampled_from("UDLR"), max_size=9)
PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).map(list), max_size=5)
BLOCKS = st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from(["table", *"ABCD"])).map(list))
FILLS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 4)).map(list))
GAMES = {
    "blocksworld_v0": (BLOCKS, {"blocks": 4}),
    "plan_path_v0": (MOVES, {"size": 5}),
    "queens_v0": (PAIRS, {"size": 5}),
    "sokoban_v0": (MOVES, {"size": 5}),
    "sudoku_v0": (FILLS, {}),
}
FAILING = {
    "nothing": "no program",
    "1 / 0": "the program failed: error, ZeroDivisionError: division by zero",
    "import": "the program failed: syntax error, SyntaxError: ",
    "raise SystemExit(3)": "the program failed: error",
    "print('none')": "what the program printed could not be read: no #### and no list",
}


def program(source):
    return f"```python\n{source}\n```"


def pair(env_id, seed=0, tool=None, **kwargs):
    """Return the tool agent alone and the planner alone, before the same level."""
    for_tool = {} if tool is None else {"tool": tool}
    envs = [
        pettingllms.make(env_id, checks=False, **kwargs, team="single-tool", **for_tool),
        pettingllms.make(env_id, checks=False, **kwargs, team="single"),
    ]
    for env in envs:
        env.reset(seed=seed)
    return envs


def step_both(alone, planner, text, answer):
    """Let both act, and compare all that follows but the words about an answer without moves."""
    alone.step(text)
    planner.step(answer)
    assert alone.state()._replace(unchanged="") == planner.state()._replace(unchanged="")
    assert bool(alone.state().unchanged) == bool(planner.state().unchanged)
    assert alone.rewards["tool_0"] == planner.rewards["planner_0"]
    assert alone.terminations["tool_0"] == planner.terminations["planner_0"]
    assert alone.truncations["tool_0"] == planner.truncations["planner_0"]
    assert alone.turn == planner.turn
    info = {k: v for k, v in alone.infos["tool_0"].items() if k not in ("tool_call", "tool_result")}
    expected = {**planner.infos["planner_0"], "parse_error": info["parse_error"]}
    assert info == expected


def ended(env):
    return any(env.terminations.values()) or any(env.truncations.values())


@pytest.mark.parametrize("env_id", GAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_what_the_tool_finds_is_the_planners_list(env_id, data):
    answers, kwargs = GAMES[env_id]
    seed = data.draw(st.integers(0, 20))
    alone, planner = pair(env_id, seed, max_turns=3, **kwargs)
    while not ended(alone):
        answer = json.dumps(data.draw(answers))
        step_both(alone, planner, program(f"print({answer!r})"), f"#### {answer}")


@given(seed=st.integers(0, 50), cells=st.lists(st.tuples(*[st.integers(-1, 6)] * 2), min_size=4))
def test_the_path_of_a_call_is_the_planners_list(seed, cells):
    alone, planner = pair("plan_path_v0", seed, "call", size=6, moves_per_turn=3, max_moves=9)
    for row, col in cells:
        if ended(alone):
            break
        level, moves = alone.state().level, None
        if level.is_free(row, col):
            position = alone.state().position
            moves = shortest_path(maze_of(level), position, level.cell(row, col))
        step_both(
            alone, planner, f"#### path({row}, {col})", f"#### {moves_json((moves or '')[:3])}"
        )


@pytest.mark.parametrize("env_id", GAMES)
@pytest.mark.parametrize("source", FAILING)
@pytest.mark.parametrize("observation_mode", ["full", "delta"])
def test_a_program_without_a_list_is_an_answer_that_cannot_be_read(
    env_id, source, observation_mode
):
    alone, planner = pair(env_id, observation_mode=observation_mode)
    step_both(alone, planner, source if source == "nothing" else program(source), "nothing")
    reason = "the answer could not be read" if source == "nothing" else FAILING[source]
    assert f"The last turn changed nothing: {reason}" in alone.observe("tool_0")
    assert alone.infos["tool_0"]["reward_parts"] == {"team": 0.0, "local": -0.05 / 4}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("path(-1, 0)", "path(-1, 0) gave none: that cell is not on the board"),
        ("neighbours(0, 1)", 'neighbours(0, 1) gave ["L","R"]'),
        ("distance(2, 3)", "distance(2, 3) gave 5"),
    ],
)
def test_the_next_turn_tells_what_a_call_without_moves_gave(text, reason):
    env = pettingllms.make("plan_path_v0", checks=False, team="single-tool", tool="call")
    env.reset(seed=0, options={"level": "P...\n.##.\n...G"})
    env.step(f"#### {text}")
    assert env.infos["tool_0"]["reward_parts"] == {"team": 0.0, "local": -0.04 / 4}
    assert f"The last turn changed nothing: {reason}." in env.observe("tool_0")


@pytest.mark.parametrize("env_id", GAMES)
def test_prompts_name_no_team_mate_and_stay_bounded(env_id):
    env = pettingllms.make(env_id, checks=False, team="single-tool")
    rng = random.Random(0)
    for seed in range(4):
        env.reset(seed=seed)
        play(env, mixed_actor(rng))
        env.reset(seed=seed)
        env.step(program("import sys\nsys.stderr.write('x' * 10**6)\nsys.exit(1)"))
        prompt = env.observe("tool_0")
        assert "planner" not in prompt
        assert "proposal" not in prompt
        assert "{" not in prompt
        assert len(prompt) < 4000
