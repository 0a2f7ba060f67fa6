"""The helper functions of the tool agent: what is read, what is answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms import ParseError
from pettingllms_envs.plan_path.policies import SEARCH_PROGRAM
from pettingllms_envs.plan_path.rules import maze_of
from pettingllms_envs.plan_path.text import level_text, parse_level
from pettingllms_envs.plan_path.tools import Call, CallTool, Fault, PythonTool

TOOL = CallTool()
#                    0123456
LEVEL = parse_level("P.#...#\n..#.#.#\n....#.#\n###.#G#\n..#....")
MAZE = maze_of(LEVEL)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("#### path(2, 3)", Call("path", 2, 3)),
        ("path(2,3)", Call("path", 2, 3)),
        ("I call path( 2 , 3 ).", Call("path", 2, 3)),
        ("#### path( 2 , 3 ), ok?", Call("path", 2, 3)),
        ("#### path(row = 2, col = 3)", Call("path", 2, 3)),
        ("#### path(2, 3)\nThe walls: [], distance(1, 1) is no use", Call("path", 2, 3)),
        ("path(row=2, col=3)", Call("path", 2, 3)),
        ("path(1, 1) or better\n#### distance(0, 4)\nyes", Call("distance", 0, 4)),
        ("neighbours(0, 0)", Call("neighbours", 0, 0)),
        ("```\npath(2, 3)\n```", Call("path", 2, 3)),
        ("path(-1, 3)", Call("path", -1, 3)),
        ("2,3", Call("path", 2, 3)),
        (" 2 3\n", Call("path", 2, 3)),
        ("so\n#### 2, 3\nbecause", Call("path", 2, 3)),
    ],
)
def test_calls_are_read_liberally(text, call):
    assert TOOL.read(text) == call


@pytest.mark.parametrize(
    "text",
    [
        "",
        "path",
        "path(1, 2) path(x, 3) path(4",
        "#### path(1, 2), path(2, 2)",
        "#### path(1, 2) or path(2, 2)",
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
    assert isinstance(TOOL.read(text), ParseError)


@given(st.one_of(st.text(), st.text("path(123, )#-= ")))
def test_any_text_is_read_without_raising(text):
    assert isinstance(TOOL.read(text), Call | ParseError)


@given(
    st.builds(Call, st.sampled_from(["path", "distance", "neighbours"]), *[st.integers(0, 99)] * 2)
)
def test_a_written_call_is_read_back(call):
    assert TOOL.read(str(call)) == call


@pytest.mark.parametrize(
    "text", ["path(" * 50_000, "path(1,", "1" * 200_000, "path(1 " + " " * 99_999]
)
def test_long_texts_are_no_trap(text):
    assert isinstance(TOOL.read(text), ParseError)


@pytest.mark.parametrize(
    ("call", "text", "moves", "is_answered"),
    [
        (Call("path", 2, 3), '["D","D","R","R","R"]', "DDRRR", True),
        (
            Call("path", 3, 5),
            '["D","D","R","R","R","D","D","R"] (the first 8 of 10 moves)',
            None,
            True,
        ),
        (Call("path", 0, 0), "none: the player stands on that cell", "", False),
        (Call("path", 0, 2), "none: that cell is a wall", "", False),
        (Call("path", 4, 0), "none: that cell cannot be reached", "", False),
        (Call("path", 5, 0), "none: that cell is not on the board", "", False),
        (Call("path", -1, 0), "none: that cell is not on the board", "", False),
        (Call("path", 0, 7), "none: that cell is not on the board", "", False),
        (Call("distance", 3, 5), "10", "", True),
        (Call("distance", 0, 0), "0", "", True),
        (Call("distance", 4, 0), "unreachable", "", True),
        (Call("distance", 3, 0), "none: that cell is a wall", "", False),
        (Call("neighbours", 0, 0), '["D","R"]', "", True),
        (Call("neighbours", 4, 0), '["R"]', "", True),
        (Call("neighbours", 9, 9), "none: that cell is not on the board", "", False),
    ],
)
def test_answers(call, text, moves, is_answered):
    result = TOOL.run(MAZE, LEVEL.start, call, 8)
    assert result.call == str(call)
    assert result.text == text
    assert result.fault is (Fault.NONE if is_answered else Fault.EMPTY)
    assert result.moves == ("DDRRRDDR" if moves is None else moves)


@pytest.mark.parametrize(
    ("source", "moves", "fault"),
    [
        ('print(\'["D","R"]\')', "DR", Fault.NONE),
        ("print('#### U, U')", "UU", Fault.NONE),
        ("print('D' * 20)", "DDDDDDDD", Fault.NONE),
        ("print([])", "", Fault.EMPTY),
        ("print(1)", "", Fault.MALFORMED),
        ("pass", "", Fault.MALFORMED),
        ("print('[U]'); 1 / 0", "", Fault.MALFORMED),
        ("print('[U]'", "", Fault.MALFORMED),
        (SEARCH_PROGRAM, "DDRRRDDR", Fault.NONE),
    ],
)
def test_programs_propose_what_they_print(source, moves, fault):
    tool = PythonTool()
    action = tool.read(f"Like this:\n```python\n{source}\n```")
    result = tool.run(MAZE, LEVEL.start, action, 8)
    assert (result.moves, result.fault) == (moves, fault)
    assert result.call in source


def test_programs_read_the_present_board():
    position = LEVEL.cell(2, 3)
    result = PythonTool().run(MAZE, position, "import sys; print(repr(sys.stdin.read()))", 8)
    assert repr(level_text(LEVEL, position) + "\n") in result.text


def test_texts_without_a_program_are_parse_errors():
    assert isinstance(PythonTool().read('#### ["U"]'), ParseError)
