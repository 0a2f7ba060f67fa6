"""The helper functions of the tool agent: what is read, what is answered."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms import ParseError
from pettingllms_envs.plan_path.env import HelperCall, answer, level_text, parse_level, read_call
from pettingllms_envs.plan_path.rules import SEARCH_PROGRAM

CALLS = json.loads(Path(__file__).with_name("calls.json").read_text("utf-8"))
"""`read`: texts and their calls, or null; `answers`: call, result, moves (null: the first 8)."""
#                    0123456
LEVEL = parse_level("P.#...#\n..#.#.#\n....#.#\n###.#G#\n..#....")


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
    result = answer(LEVEL, LEVEL.start, call, 8)
    assert result.call == str(call)
    assert result.result == text
    assert result.answer == ("DDRRRDDR" if moves is None else moves)
    assert result.is_useful is (None if result.answer else is_answered)


@pytest.mark.parametrize(
    ("source", "moves", "cost"),
    [
        ('print(\'["D","R"]\')', "DR", 0),
        ("print('#### D, D')", "DD", 0),
        ("print('D' * 20)", "DDDDDDDD", 6 * 0.04 / 32),
        ("print([])", "", 0.04 / 4),
        ("print(1)", "", 0.05 / 4),
        ("pass", "", 0.05 / 4),
        ("print('[U]'); 1 / 0", "", 0.05 / 4),
        ("print('[U]'", "", 0.05 / 4),
        (SEARCH_PROGRAM, "DDRRRDDR", 0),
    ],
)
def test_programs_propose_what_they_print(source, moves, cost):
    env = started()
    env.step(f"Like this:\n```python\n{source}\n```")
    assert "".join(env.state().proposal) == moves
    assert env.infos["tool_0"]["reward_parts"]["local"] == pytest.approx(-cost)
    assert env.state().tool_call in source


def test_programs_read_the_present_board():
    env = started()
    env.step("no program")
    env.step("DDRR")
    env.step("```python\nimport sys; print(repr(sys.stdin.read()))\n```")
    assert repr(level_text(LEVEL, LEVEL.cell(2, 2)) + "\n") in env.state().tool_result


def started():
    env = pettingllms.make("plan_path_v0", checks=False, moves_per_turn=8)
    env.reset(seed=0, options={"level": level_text(LEVEL)})
    return env
