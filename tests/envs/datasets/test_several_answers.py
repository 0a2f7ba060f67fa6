"""Statements that accept any of several outputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.code import builtin_problems
from pettingllms_envs.datasets.loading import accepts_several


@pytest.mark.parametrize(
    "sentence",
    [
        "If there are multiple answers, print any of them.",
        "If there are many solutions, output any.",
        "If there is more than one valid sequence, you may output any one of them.",
        "Print any permutation that satisfies the conditions if there are several.",
        "If several answers exist, print any.",
        "In case of several solutions output any of them.",
        "If there are several possible answers, any will be accepted.",
        "You may print any of them.",
        "If the first player wins, print any winning first move.",
        "Any valid answer will be accepted.",
        "It is guaranteed that a solution exists; any solution is accepted.",
        "If there are several partitions, Petya will be satisfied by any of them.",
        "Return any valid ordering of the courses.",
        "Find any suitable array.",
        "The numbers can be printed in any order.",
        "You can return the answer in any order.",
        "If there are several\nsolutions,\nprint any.",
    ],
)
def test_any_of_several_will_do(sentence):
    assert accepts_several(sentence)
    assert accepts_several(f"Do something. {sentence} Good luck!")


@pytest.mark.parametrize(
    "sentence",
    [
        "Do not print any extra spaces.",
        "If there are several solutions, print the lexicographically smallest.",
        "The numbers are given in any order.",
        "He needs to pour them in one by one, in any order.",
        "If he cannot find any such snack, he fails the mission.",
        "She did not want to marry any of them anyway.",
        "You need to use any of the passwords to access the system.",
        "Print -1 if it is impossible to find any such number.",
        "Print the number of different ways to choose any of them.",
        "There are too many answers in the third test, so we will not describe any of them.",
        "A divisor of n is any such natural number that divides n.",
    ],
)
def test_one_answer_is_right(sentence):
    assert not accepts_several(sentence)


def test_the_built_in_problems_have_one_answer():
    assert not [p.id for p in builtin_problems().values() if accepts_several(p.statement)]


@given(st.text())
def test_no_statement_raises(text):
    accepts_several(text)
