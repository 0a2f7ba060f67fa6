"""Asserts read as data."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.datasets.asserts import UnreadableTest, read_tests

CASES = json.loads(Path(__file__).with_name("asserts.json").read_text("utf-8"))

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(st.lists(VALUES, max_size=3), VALUES)
def test_literal_calls_become_tests(arguments, wanted):
    text = f"assert f({', '.join(map(repr, arguments))}) == {wanted!r}"
    name, tests = read_tests(text)
    assert name == "f"
    assert json.loads(tests[0].input) == arguments
    assert json.loads(tests[0].output) == wanted


@pytest.mark.parametrize(("text", "wanted"), CASES["read"])
def test_other_forms_of_asserts(text, wanted):
    _, tests = read_tests(text)
    assert json.loads(tests[0].output) == wanted


@pytest.mark.parametrize("text", CASES["refused"])
def test_anything_else_is_refused(text):
    with pytest.raises(UnreadableTest):
        read_tests(text)


def test_asserts_of_several_functions_are_refused():
    with pytest.raises(UnreadableTest, match="2 functions"):
        read_tests("assert f(1) == 1\nassert g(1) == 1")


def test_checks_of_humaneval():
    source = '''
METADATA = {"author": "x"}

def check(candidate):
    """Says nothing."""
    assert candidate([1], 2) == 3, "first"
    assert True, "always"
    assert abs(candidate([], 0) - 0.25) < 1e-3
    print("done")
'''
    name, tests = read_tests(source)
    assert name == "candidate"
    assert [json.loads(test.input) for test in tests] == [[[1], 2], [[], 0]]
    assert [json.loads(test.output) for test in tests] == [3, 0.25]


@pytest.mark.parametrize("source", CASES["checks"])
def test_checks_with_code_are_refused(source):
    with pytest.raises(UnreadableTest):
        read_tests(source)
