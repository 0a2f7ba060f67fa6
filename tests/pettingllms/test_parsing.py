import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.parsing import last_boxed, last_code_block, last_flat_list, one_line


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('#### ["U", "R"]', ["U", "R"]),
        ("[U,R] no wait [d l]", ["d", "l"]),
        ("['up', \"down\"]. Done!", ["up", "down"]),
        ("[]", []),
        ("first [A], then [ ]", []),
        ("[[1, 2, 3]]", ["1", "2", "3"]),
        ("[U", None),
        ("", None),
        ("[a,,b]", ["a", "", "b"]),
    ],
)
def test_last_flat_list(text, items):
    assert last_flat_list(text) == items


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)\n"),
        ("```py\na\n```\ntext\n```\nb\n```\nend", "b\n"),
        ("```json\n{}\n```", None),
        ("```python\nopen", None),
        ("no fence", None),
        ("```python\na\n```\n```json\n1\n```", "a\n"),
    ],
)
def test_last_code_block(text, code):
    assert last_code_block(text) == code


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1} and \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1} then \boxed{2", "1"),
        (r"\boxed {7}", "7"),
        (r"\boxed{a} } \boxed{b}", "b"),
        ("boxed{1}", None),
        (r"\boxed{", None),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


@given(st.text(alphabet=r"\boxed{}[]`,'# " + "\n"))
def test_readers_never_raise(text):
    last_flat_list(text)
    last_code_block(text)
    last_boxed(text)


@given(st.text(), st.integers(3, 50))
def test_one_line_is_short_and_printable(text, limit):
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()


def test_boxed_is_linear():
    hostile = r"\boxed{" * 200_000
    assert last_boxed(hostile) is None
    assert last_boxed(hostile + "1}") == "1"
