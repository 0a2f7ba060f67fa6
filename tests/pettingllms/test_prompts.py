import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument
from pettingllms.prompts import (
    CompiledText,
    PreparedTemplate,
    PromptField,
    PromptFields,
    PromptTemplate,
    resolve_prompts,
)

VALUES = {"turn": 3, "board": "#@%s{x}\n", "rest": 1.5, "none": None, "pair": (1, 2)}

literals = st.text("ab %s{}\n\u00e9", max_size=6).map(
    lambda text: text.replace("{", "{{").replace("}", "}}")
)
fields = st.sampled_from(
    ["{turn}", "{board}", "{rest}", "{none}", "{pair}", "{board!r}", "{turn:>5}", "{rest:.3f}"]
)


@given(st.lists(st.one_of(literals, fields), max_size=8).map("".join))
def test_a_compiled_text_is_filled_in_as_by_format(text):
    compiled = CompiledText(text)
    assert compiled.fill(VALUES) == text.format_map(VALUES)


@pytest.mark.parametrize(
    ("value", "filled"),
    [(0, "are 0 turns"), (1, "is 1 turn"), ("1", "is 1 turn"), (2, "are 2 turns")],
)
def test_words_agree_with_the_number_before_them(value, filled):
    text = CompiledText("There {turn:is # turn|are # turns}.")
    assert text.fill({"turn": value}) == f"There {filled}."
    fields = {"turn": PromptField("", lambda *moment: value)}
    assert text.fill(PromptFields(fields, "state", "agent_0", 3)) == f"There {filled}."


def test_words_are_for_one_and_for_several():
    with pytest.raises(InvalidArgument, match=r"a format that str\.format knows"):
        resolve_prompts({"a": PromptTemplate("", "{turn:a|b|c}")}, None, {"turn": ""})


def test_a_placeholder_without_a_value_is_named():
    with pytest.raises(InvalidArgument, match=r"_fields: got \{'a': 1\}; .*missing: turn, x"):
        CompiledText("{turn} {a} {x}").fill({"a": 1})


def test_system_and_user_are_one_text_if_the_system_text_is_constant():
    assert PreparedTemplate(PromptTemplate("A {{b}}", "{turn}")).whole.fill(VALUES) == "A {b}\n\n3"
    assert PreparedTemplate(PromptTemplate("", "{turn}")).whole.fill(VALUES) == "3"
    assert PreparedTemplate(PromptTemplate("{rest}", "{turn}")).whole is None


@given(st.lists(st.sampled_from(sorted(VALUES)), max_size=3))
def test_only_placeholders_that_a_text_has_are_computed(names):
    read = []
    fields = {
        name: PromptField("", lambda *moment, name=name: read.append(name) or VALUES[name])
        for name in VALUES
    }
    text = "-".join("{" + name + "}" for name in names)
    values = PromptFields(fields, "state", "agent_0", 3)
    assert CompiledText(text).fill(values) == text.format_map(VALUES)
    assert read == names
    assert dict(values) == VALUES
