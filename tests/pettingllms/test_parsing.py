"""The grammar of answers: marks, lists and calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.parsing import (
    Part,
    after_thinking,
    answer_part,
    bare_answer,
    one_line,
    printed_part,
    read_calls,
    read_list,
    usual_answer,
)
from pettingllms.types import ParseError


def listed(text):
    part = answer_part(text)
    return part if isinstance(part, ParseError) else read_list(part)


def called(text):
    part = answer_part(text)
    return part if isinstance(part, ParseError) else read_calls(part, ("go", "look"))


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("no thinking", "no thinking"),
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b<THINKING>c</thinking>d", "d"),
        ("a < b", "a < b"),
        ("<think>a", None),
        ("a</think>b<think>c", None),
    ],
)
def test_thinking_is_no_answer(text, rest):
    found = after_thinking(text)
    assert isinstance(found, ParseError) if rest is None else found == rest


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("a #### b", " b"),
        ("#### a\n#### b", " b"),
        ("####\n[b]", "\n[b]"),
        ("##### b", None),
        ("#####", None),
        ("####", None),
        ("#### ..@ ####\n", None),
        ("####\n#@.#", None),
        ("####G##\n#P..#", None),
        ("#### P", " P"),
        ("so it is\n#### G.\n", " G.\n"),
        ("#### P G #\n", None),
        ("#### b\n#####\n#.$@#\n####", " b\n#####\n#.$@#\n####"),
        ("no mark", None),
    ],
)
def test_the_last_mark_counts_and_walls_are_no_marks(text, rest):
    part = answer_part(text)
    assert (part.text, part.is_marked) == ((text, False) if rest is None else (rest, True))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so #### 12345 ", None),
        ("so #### 12345", None),
        ("so #### 1234", "1234"),
        ("#### a\n####b\n", "b"),
        ("####", ""),
        ("##### b", None),
        ("<b> #### b", None),
        ("no mark", None),
    ],
)
def test_the_usual_answer_is_short_and_behind_a_plain_mark(text, answer):
    """Of five characters at most, the spaces around it included."""
    assert usual_answer(text, 5) == answer


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('["U", "R"]', ["U", "R"]),
        ("[U R;d,]", ["U", "R", "d"]),
        ("['up', \"down\", `left`, \u201cright\u201d]", ["up", "down", "left", "right"]),
        ("[]", []),
        ("[[1, -2], (3 4)]", [["1", "-2"], ["3", "4"]]),
        ("[1],[2]", [["1"], ["2"]]),
        ("[1]\n[2]", [["1"], ["2"]]),
        ("#### [1]\n\n[2]", ["1"]),
        ("#### [1] + [2]", [["1"], ["2"]]),
        ("#### [1] [2] is wrong", None),
        ("#### [1], [2", None),
        ("#### [1]\n[2", ["1"]),
        ("####\n[1]", ["1"]),
        ("####\n[1] is one", None),
        ("#### Moves: [1]", ["1"]),
        ("#### Moves: [1], others: [2]", None),
        ("#### Moves: [1]\nothers: [2]", ["1"]),
        ("#### \\text{Moves}: [1]\n[2] loses", None),
        ("#### a\n#### Moves: [1]", None),
        ("#### a\n#### ** [1]", ["1"]),
        ("#### the moves\n[1]", ["1"]),
        ("#### the moves [1]", None),
        ("#### the moves\nare these:\n[1]", None),
        ("#### [1],\n\n[2]", [["1"], ["2"]]),
        ("It is [1]", ["1"]),
        ("#### " + "~" * 200 + "[1]", ["1"]),
        ("#### " + "~" * 201 + "[1]", None),
        ("[]" * 20_000, [[]] * 20_000),
        ("[]" * 20_001, None),
        ("#### " + " ".join(["ab"] * 20) + ": [1]", ["1"]),
        ("#### [1] x 3", None),
        ("#### \\[ [1] \\]", ["1"]),
        ("[1", None),
        ("[1)", None),
        ("[(1]", None),
        ('["a]', None),
        ("", None),
        ("[[[[1]]]]", [[[["1"]]]]),
        ("[[[[[]]]]]", None),
        ("[" + "1," * (19_998) + "]", ["1"] * (19_998)),
        ("[" + "1," * (19_999) + "]", None),
    ],
)
def test_lists(text, items):
    found = listed(text)
    assert isinstance(found, ParseError) if items is None else found == items


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("go(1, 2)", [("go", ["1", "2"])]),
        (
            "#### go(1), look([[1,2]]) then go()",
            [("go", ["1"]), ("look", [[["1", "2"]]]), ("go", [])],
        ),
        ("#### go(x=1, y = 'b')", [("go", ["1", "b"])]),
        ("#### 1. go(1)\n2. `go(2)`\n", [("go", ["1"]), ("go", ["2"])]),
        ("#### go(1)\ngo(2) loses", [("go", ["1"])]),
        ("#### go(1)\n\ngo(2)", [("go", ["1"])]),
        ("#### go(1), jump(2)", None),
        ("#### go(1) or go(2)", None),
        ("#### go(1), go(2", None),
        ("#### never go(1)", None),
        ("#### go (1)", [("go", ["1"])]),
        ("####\ngo(1)", [("go", ["1"])]),
        ("####\ngo(1) wins", None),
        ("#### go(1) wins", [("go", ["1"])]),
        ("I could go(1). I go(2).", None),
        ("ago(1)", None),
    ],
)
def test_calls(text, calls):
    found = called(text)
    assert isinstance(found, ParseError) if calls is None else found == calls


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("#### **U, R**\n[L]", "U, R"),
        ("#### Moves: U.", "U"),
        (" U R \n", "U R"),
        ("Moves: U", "Moves: U"),
        ("####\nU\nbecause", "U"),
    ],
)
def test_bare_answers(text, bare):
    assert bare_answer(answer_part(text)) == bare


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("[1]\n[2]\n", ["2"]),
        ("seen [1]\n[[2],\n [3]]\ndone", [["2"], ["3"]]),
        ("[1]\n#### [2]\n[3] was worse", ["2"]),
        ("1]", None),
        ("", None),
    ],
)
def test_the_last_list_that_a_program_printed_counts(text, items):
    found = read_list(printed_part(text))
    assert isinstance(found, ParseError) if items is None else found == items


def test_the_last_list_of_a_program_is_an_answer_as_if_it_were_marked():
    assert printed_part("seen: [1] once") == Part("[1]", is_marked=True)
    assert read_list(Part("Moves: [1]", is_marked=True)) == ["1"], "there is one mark"


def test_a_call_that_cannot_be_read_is_named():
    assert called("#### go (1") == ParseError("a call of go that cannot be read")


def test_only_the_beginning_of_a_long_text_is_looked_at():
    assert [one_line(" " * spaces + "a", 4) for spaces in (15, 16)] == ["a", ""]


@pytest.mark.parametrize(
    ("text", "reason"), [("#### U", "no list after ####"), ("U", "no #### and no list")]
)
def test_a_text_without_a_list_is_told_so(text, reason):
    assert listed(text) == ParseError(reason)


SIGNS = st.one_of(
    st.text(),
    st.text("[](),;\"'`#<>/think go123-\\{}*\n\r\u201c\u2019"),
    st.text(st.characters(categories=["Cs", "Cc", "Nd", "Zs", "Mn"])),
    st.lists(
        st.sampled_from(
            [
                "####",
                "<think>",
                "</think>",
                "[",
                "]",
                "go(",
                ")",
                "9" * 5000,
                "\n",
                " ",
                '"',
                "x",
                ",",
            ]
        )
    ).map("".join),
)


@given(SIGNS)
def test_any_text_is_read_or_refused(text):
    assert isinstance(listed(text), list | ParseError)
    assert isinstance(called(text), list | ParseError)
    assert isinstance(read_list(printed_part(text)), list | ParseError)
    part = answer_part(text)
    assert isinstance(part, ParseError) or isinstance(bare_answer(part), str)


UNITS = ["[", "]", "[]", "[[]],", "1", "[1,", "####", "#### ", "####\n", "#### [", "go(", "go(1) "]
UNITS += [
    "<think>",
    "</think>",
    "<",
    '["',
    "'",
    "\n",
    " ",
    "\\[",
    "go ",
    "**",
    "| ",
    "\ud800",
    "[9,",
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_text_is_no_trap(unit):
    text = unit * ((1 << 17) // len(unit))
    for whole in (text, "#### [" + text, "#### [1]" + text + "#### [1]"):
        assert isinstance(listed(whole), list | ParseError)
        assert isinstance(called(whole), list | ParseError)
        assert isinstance(read_list(printed_part(whole)), list | ParseError)
        assert isinstance(bare_answer(Part(whole, is_marked=True)), str)


@given(st.text(), st.integers(3, 50))
def test_one_line_is_short_and_printable(text, limit):
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()
    assert one_line(line, len(line)) == line, "what fits is whole"
