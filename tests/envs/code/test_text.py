"""Reading programs and tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.types import ParseError
from pettingllms_envs.code.text import (
    MAX_PROGRAM_CHARS,
    MAX_TEST_CHARS,
    read_program,
    read_tests,
    shown,
    without_comments,
)
from pettingllms_envs.datasets import CodeTest


def test_the_last_program_counts(program):
    assert read_program(program("a = 1") + program("a = 2")) == "a = 2\n"
    assert read_program("```py\nx\n```") == "x\n"
    assert read_program("```\nx\n```") == "x\n"


@pytest.mark.parametrize(
    "text", ["", "print(1)", "```python\nprint(1)", "```python\n \n```", "```json\n{}\n```"]
)
def test_texts_without_a_program(text):
    assert isinstance(read_program(text), ParseError)


def test_sizes_are_limited(program, test_text):
    assert isinstance(read_program(program("x" * MAX_PROGRAM_CHARS)), ParseError)
    huge = "1" * (MAX_TEST_CHARS + 1)
    assert isinstance(read_tests(test_text((huge, "1")), 1, is_call=False), ParseError)


def test_tests_are_pairs_of_blocks(test_text):
    text = test_text(("1\n2", "3"), ("4", "5"))
    assert read_tests(text, 1, is_call=False) == (CodeTest("4\n", "5\n"),)
    assert read_tests(text, 5, is_call=False) == (CodeTest("1\n2\n", "3\n"), CodeTest("4\n", "5\n"))
    assert read_tests(f"{text}\n{text}", 5, is_call=False) == read_tests(text, 5, is_call=False)
    empty = "```input\n```\n```output\n0\n```"
    assert read_tests(empty, 1, is_call=False) == (CodeTest("", "0\n"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 -> 2",
        "```output\n1\n```\n```input\n1\n```",
        "```input\n1\n```",
        "```input\n1\n```\n```output\n",
        "```input\n1\n```\n```output\n\n```",
    ],
)
def test_texts_without_a_test(text):
    assert isinstance(read_tests(text, 1, is_call=False), ParseError)


def test_tests_of_functions_are_json(test_text):
    good = read_tests(test_text(("[1, [2]]", "null")), 1, is_call=True)
    assert good == (CodeTest("[1, [2]]\n", "null\n"),)
    for pair in (("1", "2"), ("[1", "2"), ("[1]", "two"), ("{}", "1")):
        assert isinstance(read_tests(test_text(pair), 1, is_call=True), ParseError)


@given(st.text(max_size=60) | st.text(alphabet="a(\"'#\\\n :=", max_size=60))
def test_comments_of_any_program_are_dropped_once(text):
    bare = without_comments(f"{text}\n")
    assert without_comments(f"# why\n\n{text}\n") == bare or bare == f"{text}\n"


@pytest.mark.parametrize(
    "other", ["if a:\n    b = '#'\n    c = 1\n", "if a:\n    b = '#!'\nc = 1\n"]
)
def test_without_comments_what_runs_otherwise_differs(other):
    program = "if a:\n    b = '#'\nc = 1\n"
    assert without_comments(program.replace("\n", "  # ...\n")) == without_comments(program)
    assert without_comments(program) != without_comments(other)


@given(st.text(max_size=300), st.integers(10, 100))
def test_shown_texts_are_bounded(text, limit):
    assert len(shown(text, limit)) <= limit + 40
