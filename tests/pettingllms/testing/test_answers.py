"""Answers of the same form: what the degenerate policies write."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.testing.uninformed import list_answer, shorter, shuttles, singles


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
