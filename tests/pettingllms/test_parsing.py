"""How answers are read out of model text: marks, lists, calls, programs, boxes and phrases.

`parsing.json` lists texts and what is read in each; null: it is refused.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms import parsing
from pettingllms.types import ParseError

CASES = json.loads(Path(__file__).with_name("parsing.json").read_text(encoding="utf-8"))


def letters(said):
    return list(said) if said and not said.strip("abc") else ParseError("other words")


def listed(text):
    return parsing.read_list(text, lambda items: items)


def any_words(said):
    return said if said and "\n" not in said else ParseError("no line of words")


READERS = {
    "thinking": parsing.after_thinking,
    "marks": lambda text: parsing.read_phrase(text, any_words, needs_mark=True, is_free=True),
    "lists": listed,
    "printed": lambda text: parsing.read_list(parsing.printed_part(text), lambda items: items),
    "bare": lambda text: parsing.read_list(text, lambda items: items, letters),
    "programs": lambda text: parsing.read_program(text, 100),
    "boxes": parsing.read_boxed,
    "phrases": lambda text: parsing.read_phrase(text, any_words, needs_mark=True),
    "whole": lambda text: parsing.read_phrase(text, any_words, needs_mark=False),
}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_read(kind):
    for text, expected in CASES[kind]:
        found = READERS[kind](text)
        assert isinstance(found, ParseError) if expected is None else found == expected, text


def test_the_usual_answer_is_short_and_behind_a_plain_mark():
    """Of five characters at most, the spaces around it included."""
    for text, answer in CASES["usual"]:
        assert parsing.usual_answer(text, 5) == answer, text


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("[]" * 20_000, [[]] * 20_000),
        ("[]" * 20_001, None),
        ("[" + "1," * (19_998) + "]", ["1"] * (19_998)),
        ("[" + "1," * (19_999) + "]", None),
    ],
)
def test_lists_have_a_limit(text, items):
    found = listed(text)
    assert isinstance(found, ParseError) if items is None else found == items


def test_the_last_list_of_a_program_is_an_answer_as_if_it_were_marked():
    assert parsing.printed_part("seen: [1] once") == parsing.Part("[1]", is_marked=True)


def test_refusals_say_why():
    assert listed("#### U") == ParseError("no list after ####")
    assert listed("U") == ParseError("no #### and no list")


def test_only_the_beginning_of_a_long_text_is_looked_at():
    assert [parsing.one_line(" " * spaces + "a", 4) for spaces in (15, 16)] == ["a", ""]
    too_long = parsing.read_phrase(
        "#### " + "x" * (parsing.MAX_CHARS + 1), any_words, needs_mark=True
    )
    assert isinstance(too_long, ParseError)


def test_blocks_have_labels_and_contents():
    text = "```Input\n1\n```\n```output x\n2\n```\n``` \n3"
    assert parsing.code_blocks(text) == [
        parsing.Block("input", "", "1\n", is_closed=True),
        parsing.Block("output", "x", "2\n", is_closed=True),
        parsing.Block("", "", "3", is_closed=False),
    ]


def test_the_first_reading_of_a_phrase_that_fits_counts():
    offered = []

    def fits(said):
        offered.append(said)
        return said if said == "fox" else ParseError("no animal")

    assert parsing.read_phrase("#### Their animal: fox (red)", fits, needs_mark=True) == "fox"
    expected = ["Their animal: fox (red)", "Their animal: fox", "fox (red)", "fox"]
    assert offered == expected
    refused = parsing.read_phrase("#### Not this animal: fox", fits, needs_mark=True)
    assert refused == ParseError("no animal")


SIGNS = st.one_of(
    st.text(),
    st.text("[](),;\"'`#<>/think go123-\\{}*\n\r\u201c\u2019"),
    st.text("`python{}\\boxed[]<>/think \n\r\t=-*1.\ud800"),
    st.text(st.characters(categories=["Cs", "Cc", "Nd", "Zs", "Mn"])),
    st.lists(st.sampled_from([*CASES["pieces"], "9" * 5000])).map("".join),
)


@pytest.mark.parametrize("kind", READERS)
@given(text=SIGNS)
def test_any_text_is_read_or_refused(kind, text):
    assert isinstance(READERS[kind](text), list | str | ParseError)


@given(SIGNS)
def test_a_surrogate_without_a_partner_is_replaced(text):
    mended = parsing.encodable(text)
    assert mended.encode().decode() == mended
    assert mended == text or any("\ud800" <= sign < "\ue000" for sign in text)


@pytest.mark.parametrize("unit", CASES["units"])
def test_a_long_text_is_no_trap(unit):
    text = unit * ((1 << 15) // len(unit))
    short = "#### " + text[: parsing.MAX_CHARS - 1]
    fenced = ("```" + text, "```python\n" + text + "\n```", text + "```python")
    for whole in (text, "#### [" + text, "#### [1]" + text + "#### [1]", short, *fenced):
        for read in READERS.values():
            assert isinstance(read(whole), list | str | ParseError)


def test_nested_boxes():
    hostile = r"\boxed{" * 200_000
    assert parsing.boxed_answer(hostile) is None
    assert parsing.boxed_answer(hostile + "1}") == "1"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r`")).filter(str.strip))
def test_a_written_program_is_read_back(program):
    assert parsing.read_program(f"So:\n```python\n{program}\n```\nDone.", 10**6) == f"{program}\n"


@given(st.text(), st.integers(3, 50))
def test_one_line_is_short_and_printable(text, limit):
    line = parsing.one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()
    assert parsing.one_line(line, len(line)) == line, "what fits is whole"
