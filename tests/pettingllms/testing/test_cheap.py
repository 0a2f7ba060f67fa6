"""The search for cheap policies: what it finds, and what it lets pass."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.edits import EDITS
from pettingllms.testing import search_cheap_policies
from pettingllms.testing.cheap import MAX_SHARE, check_cheap_policies
from pettingllms.testing.uninformed import (
    Clue,
    edited,
    example,
    guesses,
    list_answer,
    shorter,
    shuttles,
    singles,
)

FORM = """\
```input
(the input)
```
```output
(the output)
```

Example input
3
1 2 30

Output
6
"""


def test_an_honest_game_passes(corridor_env, faults):
    assert not faults(corridor_env, [check_cheap_policies])
    rows = search_cheap_policies(corridor_env)
    assert [(row.role, row.pay) for row in rows] == [("scout", "return"), ("walker", "return")]
    for row in rows:
        assert row.oracle == pytest.approx(2.0)
        assert row.share <= MAX_SHARE


def pay_for_agreement(base):
    class Mutant(base):
        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            agreed = agent == "walker_0" and bool(action) and action == state.advice
            return done._replace(team=done.team + 0.3 * agreed)

    return Mutant


def test_what_is_paid_for_nothing_is_named_with_an_episode(corridor_env, faults, mention):
    found = faults(pay_for_agreement(corridor_env), [check_cheap_policies], longest=60)
    mention(
        found, "a share of [0-9]+%, and 25% are allowed.\nAn episode of the largest share ends so:"
    )
    mention(found, "walker_0 writes")


def test_a_game_states_a_share_of_its_own(corridor_env, faults):
    class Mutant(pay_for_agreement(corridor_env)):
        metadata = {**corridor_env.metadata, "cheap_share": 1.0}

    assert not faults(Mutant, [check_cheap_policies])


def test_forms_are_filled_with_the_example():
    assert example(FORM) == "```input\n3\n1 2 30\n```\n```output\n6\n```"
    assert example("Write:\n#### 1 b\nNow:\n#### 2 c\n") == "#### 2 c"
    assert example("Nothing to copy.") == ""


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("its last line reversed", "3\n30 2 1", "6"),
        ("its last number plus one", "3\n1 2 31", "7"),
        ("its first number plus one", "4\n1 2 30", "7"),
        ("its last line twice", "3\n1 2 30\n1 2 30", "6\n6"),
        ("without its last line", "3", ""),
    ],
)
def test_edits_of_blocks(name, first, last):
    text = example(FORM)
    assert edited(text, EDITS[name], 0) == f"```input\n{first}\n```\n```output\n6\n```"
    assert edited(text, EDITS[name], -1) == f"```input\n3\n1 2 30\n```\n```output\n{last}\n```"


def test_an_edit_of_a_marked_answer():
    assert edited("#### 1 b", EDITS["its last line reversed"], 0) == "#### b 1"
    assert edited("#### abc", EDITS["its last line reversed"], 0) == "#### cba"
    assert edited("#### 0.5", EDITS["its last number plus one"], 0) == "#### 0.5"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("silence", ""),
        ("line 1 from the end", "#### Name: Ada Low, 7 of 9."),
        ("line 1 from the end, after its colon", "#### Ada Low, 7 of 9"),
        ("number 1", "#### 7"),
        ("number 1 from the end", "#### 9"),
        ("name 1 from the end", "#### Ada Low"),
        ("what a team-mate wrote last", "hers"),
        ("the same as before", "mine"),
    ],
)
def test_guesses_read_nothing_but_places(name, answer):
    prompt = "rules of the game\n" * 9 + "Write ####\nName: Ada Low, 7 of 9."
    moment = Clue("a_0", prompt, {"b_0": "hers", "a_0": "mine"})
    assert guesses()[name](moment) == answer


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Write \\boxed{answer}.\n7", "\\boxed{7}"),
        ("Write ```python\n7", "```python\nprint('7')\n```"),
        ("Say it.\n7", "7"),
    ],
)
def test_guesses_take_the_form_that_is_asked_for(prompt, answer):
    assert guesses()["line 1 from the end"](Clue("a_0", prompt, {})) == answer


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('#### ["U","R"]', ("U", "R")),
        ("#### [[1,2,3],[4,1,2]]", ([1, 2, 3], [4, 1, 2])),
        ('```python\nprint(\'["U","R"]\')\n```', ("U", "R")),
        ('Not ["L"] but ["R"].', ("R",)),
        ("#### []", None),
        ("#### 57", None),
        ("[", None),
        ("[1, 2] and more", None),
        ("x = [1]\nprint(x)", None),
        ("[" * 300, None),
        ("", None),
    ],
)
def test_the_list_that_a_text_ends_in(text, items):
    found = list_answer(text)
    assert (found and found.items) == items


@given(
    before=st.text(max_size=20).filter(lambda text: "[" not in text),
    items=st.lists(st.one_of(st.text(max_size=3), st.lists(st.integers(), max_size=3)), min_size=1),
)
def test_writing_the_same_items_gives_the_same_answer(before, items):
    answer = list_answer(before + json.dumps(items))
    assert answer.items == tuple(items)
    assert list_answer(answer.with_items(answer.items)).items == answer.items


def test_variants_of_a_list():
    text = '#### ["U","R","U"]'
    assert shorter(text) == ['#### ["U","R"]']
    assert singles([text]) == ['#### ["U"]', '#### ["R"]']
    assert shuttles([text]) == ['#### ["U","R","U","R","U","R","U","R"]']
    assert shorter("#### 5") == singles(["#### 5"]) == shuttles(["#### 5"]) == []
