"""Answers of a few words: what is read, what is refused, and that it takes no time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.parsing import MAX_CHARS, read_phrase
from pettingllms.types import ParseError


def any_words(said):
    return said or ParseError("no word")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#### red fox", "red fox"),
        ("so\n#### **Red fox**.\nbecause it is red", "Red fox"),
        ("#### The answer is red fox", "red fox"),
        ("#### So, my final answer: `red fox`", "red fox"),
        ("#### Therefore the best query is: red fox", "red fox"),
        (r"#### \boxed{\text{red fox}}", "red fox"),
        (r"#### $\boxed{\{red\} fox}$", r"\{red\} fox"),
        ("#### <answer>red fox</answer>", "red fox"),
        ("#### red fox</answer>", "red fox"),
        ("#### red fox<|im_end|><|im_start|>user", "red fox"),
        ("#### red fox</s>", "red fox"),
        ('#### ["red fox"]', "red fox"),
        ('####\n{\n  "answer": "red fox",\n  "sure": true\n}', "red fox"),
        ('#### Final answer\n\n```json\n{"query": "red fox"}\n```\n', "red fox"),
        ("#### [red fox]", "red fox"),
        ("#### \u201cred fox\u201d!", "red fox"),
        ("#### - red fox", "red fox"),
        ("#### -", "-"),
        ("#### ?", "?"),
        ("#### Fox: the film", "Fox: the film"),
        ("#### red fox (or so)", "red fox (or so)"),
        ("#### hare\nNo, that is wrong.\n#### red fox", "red fox"),
        ("#### red fox\n#### red fox", "red fox"),
        ("<think>#### hare</think>#### red fox", "red fox"),
        ("#### hare\n#### red fox", None),
        ("#### hare\n(My answer follows #### above.)", None),
        ("#### <answer>red fox", None),
        ("#### ", None),
        ("#### " + "x" * (MAX_CHARS + 1), None),
        ("red fox", None),
        ("<think>#### red fox", None),
    ],
)
def test_what_is_read_after_the_mark(text, said):
    found = read_phrase(text, any_words, needs_mark=True)
    assert isinstance(found, ParseError) if said is None else found == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("red fox", "red fox"),
        ("My answer is red fox", "red fox"),
        ("```\nred fox\n```", "red fox"),
        ('```json\n{"answer": "red fox"}\n```', "red fox"),
        ('{"answer": "red fox"} or not', '{"answer": "red fox"} or not'),
        ("so\n#### red fox", "red fox"),
    ],
)
def test_without_a_mark_the_whole_text_is_the_answer(text, said):
    assert read_phrase(text, any_words, needs_mark=False) == said


def test_the_first_reading_that_fits_counts():
    offered = []

    def fits(said):
        offered.append(said)
        return said if said == "fox" else ParseError("no animal")

    assert read_phrase("#### Their animal: fox (red)", fits, needs_mark=True) == "fox"
    expected = ["Their animal: fox (red)", "Their animal: fox", "fox (red)", "fox"]
    assert offered == expected
    refused = read_phrase("#### Not this animal: fox", fits, needs_mark=True)
    assert refused == ParseError("no animal")


PIECES = ["####", "\n", "answer", " is ", ":", "\\boxed{", "}", "<b>", "</b>", "[", "]", "(", ")"]
PIECES += ['"', "'", "```", "{", "fox", "<|im_end|>", "\ud800", "*", "-", "the ", "9" * 5000]
SIGNS = st.lists(st.sampled_from(PIECES)).map("".join)


@given(st.one_of(st.text(), SIGNS), st.booleans())
def test_any_text_is_read_or_refused(text, needs_mark):
    assert isinstance(read_phrase(text, any_words, needs_mark=needs_mark), str | ParseError)


UNITS = ["\n", "```\n", "answer\n", "the ", "a: ", "(", "()", "<b>", "</b>", "\\boxed{", "[", "{"]
UNITS += [
    "####",
    "#### a\n",
    "<|a|>",
    '"',
    "'",
    "- ",
    "* ",
    "a ->",
    "1",
    '{"answer":',
    "\\(",
    "so, ",
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_mebibyte_is_no_trap(unit):
    text = unit * ((1 << 20) // len(unit))
    for whole in (text, "#### " + text, "#### " + text[: MAX_CHARS - 1], text + "\n#### a"):
        for needs_mark in (True, False):
            read_phrase(whole, lambda said: ParseError("no"), needs_mark=needs_mark)
