"""The helper functions of the tool agent: what is read, what is answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms import ParseError
from pettingllms_envs.plan_path.env import HelperCall, answer, level_text, parse_level, read_call
from pettingllms_envs.plan_path.policies import SEARCH_PROGRAM

#                    0123456
LEVEL = parse_level("P.#...#\n..#.#.#\n....#.#\n###.#G#\n..#....")


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("#### path(2, 3)", HelperCall("path", 2, 3)),
        ("path(2,3)", HelperCall("path", 2, 3)),
        ("I call path( 2 , 3 ).", HelperCall("path", 2, 3)),
        ("#### path(row = 2, col = 3)", HelperCall("path", 2, 3)),
        ("#### path(2, 3)\nThe walls: [] are no use", HelperCall("path", 2, 3)),
        ("path(row=2, col=3)", HelperCall("path", 2, 3)),
        ("path(1, 1) or better\n#### distance(0, 4)\nyes", HelperCall("distance", 0, 4)),
        ("neighbours(0, 0)", HelperCall("neighbours", 0, 0)),
        ("```\npath(2, 3)\n```", HelperCall("path", 2, 3)),
        ("path(-1, 3)", HelperCall("path", -1, 3)),
        ("2,3", HelperCall("path", 2, 3)),
        (" 2 3\n", HelperCall("path", 2, 3)),
        ("so\n#### 2, 3\nbecause", HelperCall("path", 2, 3)),
    ],
)
def test_calls_are_read_liberally(text, call):
    assert read_call(text) == call


@pytest.mark.parametrize(
    "text",
    [
        "",
        "path",
        "path(1, 2) path(x, 3) path(4",
        "#### path(1, 2), path(2, 2)",
        "#### path(1, 2) or path(2, 2)",
        "#### path(2, 3)\nThe walls: [], distance(1, 1) is no use",
        "I call path(2, 3), ok?",
        "path()",
        "path(row, col)",
        "path(1)",
        "path(1, 2, 3)",
        "path(1.5, 2)",
        "path(99999, 1)",
        "path(1 + 1, 2)",
        "mypath(1, 2)",
        "23",
        "I think 2,3",
        "__import__('os')",
        "\u0661,\u0662",
    ],
)
def test_other_texts_are_parse_errors(text):
    assert isinstance(read_call(text), ParseError)


@given(st.one_of(st.text(), st.text("path(123, )#-= ")))
def test_any_text_is_read_without_raising(text):
    assert isinstance(read_call(text), HelperCall | ParseError)


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


@pytest.mark.parametrize(
    ("call", "text", "moves", "is_answered"),
    [
        (HelperCall("path", 2, 3), '["D","D","R","R","R"]', "DDRRR", True),
        (
            HelperCall("path", 3, 5),
            '["D","D","R","R","R","D","D","R"] (the first 8 of 10 moves)',
            None,
            True,
        ),
        (HelperCall("path", 0, 0), "none: the player stands on that cell", "", False),
        (HelperCall("path", 0, 2), "none: that cell is a wall", "", False),
        (HelperCall("path", 4, 0), "none: that cell cannot be reached", "", False),
        (HelperCall("path", 5, 0), "none: that cell is not on the board", "", False),
        (HelperCall("path", -1, 0), "none: that cell is not on the board", "", False),
        (HelperCall("path", 0, 7), "none: that cell is not on the board", "", False),
        (HelperCall("distance", 3, 5), "10", "", True),
        (HelperCall("distance", 0, 0), "0", "", True),
        (HelperCall("distance", 4, 0), "unreachable", "", True),
        (HelperCall("distance", 3, 0), "none: that cell is a wall", "", False),
        (HelperCall("neighbours", 0, 0), '["D","R"]', "", True),
        (HelperCall("neighbours", 4, 0), '["R"]', "", True),
        (HelperCall("neighbours", 9, 9), "none: that cell is not on the board", "", False),
    ],
)
def test_answers(call, text, moves, is_answered):
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
