"""Correct programs, tests and boxed answers inside chatter: those are read, or none."""

import itertools
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pettingllms.types import ParseError
from pettingllms_envs.code.text import read_tests
from pettingllms_envs.datasets import CodeTest
from pettingllms_envs.math.text import read_boxed
from pettingllms_envs.python_tool import read_program

PARTS = json.loads(Path(__file__).with_name("chatter_programs.json").read_text("utf-8"))
"""By name: what stands before a program, how it is dressed (in place of A), and what follows."""
BEFORE_CODE, DRESS_CODE, AFTER_CODE = PARTS["before"], PARTS["dress"], PARTS["after"]
MUST_READ = ("as asked", "py", "capitals", "CRLF", "spaces", "four ticks", "attributes", "indented")


def program_text(before, dress, after):
    line_end = "" if before == "one line" else "\n"
    program = DRESS_CODE[dress].replace("A", "print(1)")
    return BEFORE_CODE[before] + line_end + program + AFTER_CODE[after]


NO_READER_CAN_TELL = {
    ("never closed", "an open block"),  # the fence of the open block closes the program
    ("closed at the end of a line", "an open block"),
    ("an open program", "no label"),
    ("a draft", "no label"),  # labelled blocks win
}


def test_no_chatter_turns_a_program_into_another():
    for before, dress, after in itertools.product(BEFORE_CODE, DRESS_CODE, AFTER_CODE):
        if {(dress, after), (before, dress)} & NO_READER_CAN_TELL:
            continue
        read = read_program(program_text(before, dress, after))
        indent = "  " if (before, dress) == ("one line", "indented") else ""
        kind = (before, dress, after)
        assert isinstance(read, ParseError) or read == f"{indent}print(1)\n", kind
        is_open = after == "an open block" or {"an open thought", "an open program"} & set(kind)
        assert not isinstance(read, ParseError) or dress not in MUST_READ or is_open, kind


@given(
    st.sampled_from(
        ["", "So \\boxed{7}? No.\n", "<think>\\boxed{7}</think>", "$7$ or \\fbox{7}\n"]
    ),
    st.sampled_from(
        [
            "\\boxed{A}",
            "**\\boxed{A}**",
            "$$\\boxed{A}$$",
            "#### \\boxed{ A }",
            "\\boxed\n{A}",
            "\\boxed{A",
        ]
    ),
    st.sampled_from(
        [
            "",
            ".",
            "\n#### Check\nIt is not 7.",
            " and not 7",
            "\n[7]",
            "\n<think>\\boxed{7}",
            " } {7}",
            " {\\boxed{7",
        ]
    ),
    st.sampled_from(["12", "\\frac{1}{2}", "x_{1}^{2}", "\\{1, 2\\}", "(1, 2]"]),
)
def test_no_chatter_turns_a_boxed_answer_into_another(before, dress, after, answer):
    read = read_boxed(before + dress.replace("A", answer) + after)
    assert isinstance(read, ParseError) or read.answer == answer
    assert not isinstance(read, ParseError) or "{A}" not in dress or "\\boxed" in after


TEST = "```input\n1\n```\n```output\n2\n```"


@given(
    st.sampled_from(["", "Like this:\n", "```python\nprint(1)\n```\n", f"<think>{TEST}</think>\n"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(
        ["", "\nDone.", "\n```python\nprint(2)\n```", "\n```\n9\n```", "\n```input\n9"]
    ),
)
def test_no_chatter_turns_a_test_into_another(before, line_end, after):
    text = before + "```input\n5\n```\nso\n```output\n6\n```".replace("\n", line_end) + after
    read = read_tests(text, 1, is_call=False)
    assert isinstance(read, ParseError) or read == (CodeTest("5\n", "6\n"),)
    assert not isinstance(read, ParseError) or "```input" in after
