"""Statements that accept any of several outputs."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.code import builtin_problems
from pettingllms_envs.datasets.loading import accepts_several

CASES = json.loads(Path(__file__).with_name("several_answers.json").read_text("utf-8"))


@pytest.mark.parametrize("sentence", CASES["several"])
def test_any_of_several_will_do(sentence):
    assert accepts_several(sentence)
    assert accepts_several(f"Do something. {sentence} Good luck!")


@pytest.mark.parametrize("sentence", CASES["one"])
def test_one_answer_is_right(sentence):
    assert not accepts_several(sentence)


def test_the_built_in_problems_have_one_answer():
    assert not [p.id for p in builtin_problems().values() if accepts_several(p.statement)]


@given(st.text())
def test_no_statement_raises(text):
    accepts_several(text)
