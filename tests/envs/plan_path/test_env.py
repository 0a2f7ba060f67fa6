"""The environment: prompts, info, helper functions of the tool agent, rendering."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms import ParseError
from pettingllms_envs.plan_path.env import HelperCall, answer, level_text, parse_level, read_call

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


CALLS = json.loads(Path(__file__).with_name("calls.json").read_text("utf-8"))
"""`read`: texts and their calls, or null; `answers`: call, result, moves (null: the first 8)."""
#                    0123456
BOARD = parse_level("P.#...#\n..#.#.#\n....#.#\n###.#G#\n..#....")


@pytest.mark.parametrize(("text", "call"), CALLS["read"])
def test_calls_are_read_liberally_and_other_texts_not(text, call):
    found = read_call(text)
    assert isinstance(found, ParseError) if call is None else str(found) == call


@given(
    st.builds(
        HelperCall, st.sampled_from(["path", "distance", "neighbours"]), *[st.integers(0, 99)] * 2
    )
)
def test_a_written_call_is_read_back(call):
    assert read_call(str(call)) == call


@pytest.mark.parametrize(
    "text", ["path(" * 50_000, "path(1,", "1" * 200_000, "path(1 " + " " * 99_999]
)
def test_long_texts_are_no_trap(text):
    assert isinstance(read_call(text), ParseError)


@pytest.mark.parametrize(("name", "row", "col", "text", "moves", "is_answered"), CALLS["answers"])
def test_answers(name, row, col, text, moves, is_answered):
    call = HelperCall(name, row, col)
    result = answer(BOARD, BOARD.start, call, 8)
    assert result.call == str(call)
    assert result.result == text
    assert result.answer == ("DDRRRDDR" if moves is None else moves)
    assert result.is_useful is (None if result.answer else is_answered)


def test_programs_read_the_present_board():
    env = before_call()
    env.step("no program")
    env.step("DDRR")
    env.step("```python\nimport sys; print(repr(sys.stdin.read()))\n```")
    assert repr(level_text(BOARD, BOARD.cell(2, 2)) + "\n") in env.state().tool_result


def before_call():
    env = pettingllms.make("plan_path_v0", checks=False, moves_per_turn=8)
    env.reset(seed=0, options={"level": level_text(BOARD)})
    return env
