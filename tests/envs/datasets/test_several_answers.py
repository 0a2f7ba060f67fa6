"""Statements that accept any of several outputs."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.code import builtin_problems
from pettingllms_envs.datasets.statements import accepts_any_case, accepts_several

CASES = json.loads(Path(__file__).with_name("several_answers.json").read_text("utf-8"))


@pytest.mark.parametrize("sentence", CASES["several"])
def test_any_of_several_will_do(sentence):
    assert accepts_several(sentence)
    assert accepts_several(f"Do something. {sentence} Good luck!")


@pytest.mark.parametrize("sentence", CASES["one"])
def test_one_answer_is_right(sentence):
    assert not accepts_several(sentence)


@pytest.mark.parametrize(
    ("sentence", "is_any"),
    [(one, kind == "any case") for kind in ("any case", "one case") for one in CASES[kind]],
)
def test_the_case_of_letters_may_be_free(sentence, is_any):
    assert accepts_any_case(f"Do something. {sentence} Good luck!") == is_any


@pytest.mark.parametrize("is_free", [accepts_several, accepts_any_case])
def test_the_built_in_problems_have_one_answer(is_free):
    assert not [p.id for p in builtin_problems().values() if is_free(p.statement)]


@given(st.text())
def test_no_statement_raises(text):
    accepts_several(text)
    accepts_any_case(text)
