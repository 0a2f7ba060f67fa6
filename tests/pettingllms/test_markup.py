"""Programs in code blocks, and boxed answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.parsing import Block, code_blocks, last_boxed, read_boxed, read_program
from pettingllms.types import ParseError

PROGRAM = "```python\nprint(1)\n```"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (PROGRAM, "print(1)\n"),
        ("```py\na\n```\ntext\n```\nb\n```\nend", "a\n"),
        ("```Python3\na\n```", "a\n"),
        ("```python\na\n```\nbetter:\n```python\nb\n```", "b\n"),
        (f"{PROGRAM}\nExpected output:\n```\n1\n```", "print(1)\n"),
        (f"Input:\n```\n1 2\n```\n{PROGRAM}\n```text\n1\n```", "print(1)\n"),
        ("```\na\n```", "a\n"),
        ("```\na\n```\n```\nb\n```", None),
        ("Here it is: ```python\na\n```", "a\n"),
        ("**Program** ```python\na\n```", "a\n"),
        ("```python\r\na\r\nb\r\n```\r\n", "a\nb\n"),
        ("```python {.numbers}\na\n```", "a\n"),
        ('```python title="a.py"\na\n```', "a\n"),
        ("```python import sys\na\n```", None),
        ("```python print(1)```", None),
        ("```python print(1)```\nOutput:\n```\n1\n```", None),
        ("- so:\n  ```python\n  if a:\n      b\n  ```", "if a:\n    b\n"),
        ("- ```python\n  a\n  ```", "a\n"),
        ("````python\na\n```\nb\n````", "a\n```\nb\n"),
        ('```python\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n```', None),
        ('```python\ndef f():\n    """\n    ```python\n    f()\n    ```\n    """\n```', None),
        ("```\nunclosed\n```python\na\n```", "a\n"),
        ("```python\nopen", None),
        (f"{PROGRAM}\nbetter:\n```python\nopen", None),
        ("```python\na\n```python\nb\n```", None),
        ("```python\nprint(1)```", None),
        ("```python\n\n```", None),
        ("```json\n{}\n```", None),
        ("Use ``` for code.", None),
        ("print(1)", None),
        (f"<think>\n{PROGRAM}\n</think>\n```python\nb\n```", "b\n"),
        (f"<think>\n{PROGRAM}", None),
        (f"{PROGRAM}</think>", None),
        ("```python\n" + "x" * 100 + "\n```", None),
    ],
)
def test_programs(text, program):
    found = read_program(text, 100)
    if 'def f():\n    """' in text:
        program = text[len("```python\n") : -3]  # fences in a docstring are part of the program
    assert isinstance(found, ParseError) if program is None else found == program


def test_blocks_have_labels_and_contents():
    text = "```Input\n1\n```\n```output x\n2\n```\n``` \n3"
    assert code_blocks(text) == [
        Block("input", "", "1\n", is_closed=True),
        Block("output", "x", "2\n", is_closed=True),
        Block("", "", "3", is_closed=False),
    ]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1} and \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1} then \boxed{2", None),
        (r"\boxed {7}", "7"),
        (r"\boxed{a} } \boxed{b}", "b"),
        ("boxed{1}", None),
        (r"\boxed{", None),
        (r"<think>\boxed{1}</think> \boxed{2}", "2"),
        (r"<think>\boxed{1}", None),
        (r"\boxed{1} <think> or \boxed{2}", None),
        (r"\boxed{1}</think>", None),
        (r"\boxed{}", None),
    ],
)
def test_boxed_answers(text, content):
    found = read_boxed(text)
    assert isinstance(found, ParseError) if content is None else found == content


@given(st.one_of(st.text(), st.text("`python{}\\boxed[]<>/think \n\r\t=-*1.\ud800")))
def test_any_text_is_read_or_refused(text):
    assert isinstance(read_program(text, 50), str | ParseError)
    assert isinstance(read_boxed(text), str | ParseError)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r`")).filter(str.strip))
def test_a_written_program_is_read_back(program):
    assert read_program(f"So:\n```python\n{program}\n```\nDone.", 10**6) == f"{program}\n"


UNITS = [
    "```",
    "``` ",
    "```\n",
    "```python\n",
    "`",
    "` ",
    "\n",
    " ",
    "a=a=",
    "- ",
    "1. ",
    "\t",
    "<",
]
UNITS += [r"\boxed{", "{", "}", r"\boxed{}", r"\boxed ", "```a=1 ", "```python {", "\r", "\ud800"]


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_text_is_no_trap(unit):
    text = unit * ((1 << 18) // len(unit))
    for whole in (text, "```" + text, "```python\n" + text + "\n```", text + "```python"):
        assert isinstance(read_program(whole, 100), str | ParseError)
        assert isinstance(read_boxed(whole), str | ParseError)


def test_nested_boxes():
    hostile = r"\boxed{" * 200_000
    assert last_boxed(hostile) is None
    assert last_boxed(hostile + "1}") == "1"
