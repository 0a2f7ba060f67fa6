"""The environment: conformance, prompts, info, levels from texts, rendering."""

import random

import numpy as np
import pytest

import pettingllms
from pettingllms.errors import (
    InvalidArgument,
    LevelFormatError,
    UnreachableRequest,
)
from pettingllms_envs.plan_path import PlanPathEnv
from pettingllms_envs.team_table import TEAMS

LEVEL = "P..#\n##..\n...G"


def make(**kwargs):
    return pettingllms.make("plan_path_v0", checks=False, **{"tool": "call", **kwargs})


def started(**kwargs):
    env = make(**kwargs)
    env.reset(seed=0, options={"level": LEVEL})
    return env


def test_info_tells_what_a_list_of_moves_did():
    env = started(team="single", moves_per_turn=7)
    env.step('["U","R","R","L","R","D","X"]')
    assert env.infos["planner_0"]["parse_error"] == "'X' is none of the moves U, D, L, R"
    env.step('["U","R","R","L","R","D","D","R","U"]')
    info = env.infos["planner_0"]
    assert info["executed"] == tuple("RRLRDD")
    assert (info["illegal_moves"], info["cut_moves"], info["unused_moves"]) == (1, 2, 0)
    assert (info["position"], info["distance"], info["shortest"]) == ((2, 2), 1, 5)
    assert (info["moves_used"], info["optimality"], info["success"]) == (6, 0.0, False)
    env.step("RLLL")
    info = env.infos["planner_0"]
    assert (info["executed"], info["unused_moves"], info["distance"]) == (("R",), 3, 0)
    assert (info["moves_used"], info["success"]) == (7, True)
    assert info["optimality"] == pytest.approx(5 / 7)
    assert env.terminations == {"planner_0": True}


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("policy", PlanPathEnv.scripted_policies)
def test_scripted_answers_have_the_form_that_the_prompt_asks_for(team, policy):
    terse = {role: {"system": "", "user": "{board_flat}"} for role in ("planner", "tool")}
    terse = {role: part for role, part in terse.items() if role in make(team=team).prompts}
    marked, plain = make(team=team), make(team=team, prompts=terse)
    for env, mark in ((marked, "#### "), (plain, "")):
        env.reset(seed=1)
        for _ in range(len(env.possible_agents)):
            agent = env.agent_selection
            text = env.scripted_action(agent, policy, random.Random(2))
            assert text.startswith(mark)
            if not mark and agent == "tool_0":
                assert text.replace(",", "").isdigit()
            if not mark and agent == "planner_0":
                assert set(text) <= set("UDLR")
            env.step(text)
            assert env.infos[agent]["parse_error"] is None


def test_flat_centred_board_is_a_square_around_the_player():
    prompts = {"planner": {"system": "", "user": "{board_flat}"}}
    env = make(team="single", view="centred", size=5, min_moves=3, prompts=prompts)
    env.reset(seed=0)
    seen = env.observe("planner_0")
    assert len(seen) == 36
    assert seen[3 * 6 + 3] == "P"


def test_delta_observations_tell_what_is_new():
    env = started(team="single", observation_mode="delta")
    assert "Moves: U is row - 1" in env.observe("planner_0")
    env.step('["R"]')
    assert env.observe("planner_0") == (
        "Turn 2 of 4.\nThe player is at row 0, column 1. The goal is at row 2, column 3."
    )


@pytest.mark.parametrize(
    ("options", "kind", "word"),
    [
        ({"level": 7}, InvalidArgument, "level"),
        ({"level": "P.#\n..#\nG.x"}, LevelFormatError, "line 3, column 3"),
        ({"level": "P....G"}, InvalidArgument, "a level of 5 moves"),
    ],
)
def test_unusable_levels_are_refused(options, kind, word):
    env = make(max_turns=1, moves_per_turn=4)
    with pytest.raises(kind, match=word):
        env.reset(seed=0, options=options)


@pytest.mark.parametrize(
    ("kwargs", "kind", "word"),
    [
        ({"team": "planners"}, InvalidArgument, "tool-planner, proposer-planner, single"),
        ({"tool": "pyton"}, InvalidArgument, 'did you mean "python"'),
        ({"view": "top"}, InvalidArgument, "board, centred"),
        ({"moves_per_turn": 0}, InvalidArgument, "moves_per_turn"),
        ({"moves_per_turn": "9"}, InvalidArgument, "moves_per_turn"),
        ({"levels": ["P."]}, LevelFormatError, "no G"),
        ({"min_moves": 30, "max_moves": 20}, UnreachableRequest, "min_moves=30"),
        ({"max_moves": 41}, UnreachableRequest, "at most 40 can be"),
        ({"min_moves": 41}, UnreachableRequest, "min_moves=41"),
        ({"sizes": 4}, InvalidArgument, "size"),
    ],
)
def test_unusable_arguments_are_refused(kwargs, kind, word):
    with pytest.raises(kind, match=word):
        make(**kwargs)


@pytest.mark.parametrize("kwargs", [{"max_turns": 1, "moves_per_turn": 2}, {"max_moves": 2}])
def test_small_budgets_lower_the_default_range(kwargs):
    env = make(**kwargs)
    for seed in range(20):
        env.reset(seed=seed)
        assert env.state().level.shortest <= 2


def test_pictures_show_walls_goal_and_player():
    env = started(render_mode="rgb_array")
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((73, 97, 3), np.uint8)
    centres = {
        (row, col): tuple(picture[row * 24 + 12, col * 24 + 12])
        for row in range(3)
        for col in range(4)
    }
    colours = {centres[0, 0], centres[2, 3], centres[0, 1], centres[1, 0]}
    assert len(colours) == 4
    assert centres[0, 3] == centres[1, 0]
    assert centres[1, 2] == centres[0, 1]
