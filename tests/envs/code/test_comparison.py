"""Output comparison."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.code import outputs_match, values_match
from pettingllms_envs.code.comparison import MAX_JSON_DEPTH, inputs_match, json_or_none

CASES = json.loads(Path(__file__).with_name("comparisons.json").read_text(encoding="utf-8"))
CASES["inputs"].append(["7" * 9000, "07" + "7" * 8999, False, True])


@pytest.mark.parametrize("kind", ["equal", "different"])
def test_outputs(kind):
    for actual, expected in CASES[kind]:
        assert outputs_match(actual, expected) is (kind == "equal"), (actual, expected)


@given(st.text(max_size=60))
def test_every_text_matches_itself(text):
    assert outputs_match(text, text)
    assert outputs_match(f"  {text}\n\n", text)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5))
def test_rounding_within_the_tolerance_is_free(numbers):
    assert outputs_match(" ".join(map(repr, numbers)), " ".join(f"{x:.9f}" for x in numbers))


@given(st.integers(-(10**40), 10**40))
def test_whole_numbers_are_exact(number):
    assert not outputs_match(str(number + 1), str(number))
    assert outputs_match(f"{number}.0", str(number))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON)
def test_every_value_matches_itself(value):
    assert values_match(json.loads(json.dumps(value)), value)
    assert not values_match([value], value)


@pytest.mark.parametrize(("actual", "expected", "is_equal"), CASES["values"])
def test_values(actual, expected, is_equal):
    assert values_match(actual, expected) is is_equal


@pytest.mark.parametrize(("text", "other", "is_call", "is_same"), CASES["inputs"])
def test_inputs(text, other, is_call, is_same):
    assert inputs_match(text, other, is_call=is_call) is is_same
    assert inputs_match(other, text, is_call=is_call) is is_same


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_json_is_read_to_a_fixed_depth(opening, closing):
    def nested(depth):
        return opening * depth + "1" + closing * depth

    assert json_or_none(nested(MAX_JSON_DEPTH)) is not None
    for depth in (MAX_JSON_DEPTH + 1, 600, 985, 100_000):
        assert json_or_none(nested(depth)) is None
    assert json_or_none(opening * 5000) is None
    assert json_or_none("[" + ", ".join(["[]"] * 50_000) + "]") == [[]] * 50_000


def test_values_of_any_depth_are_compared():
    deep, other = [1], [2]
    for _ in range(5_000):
        deep, other = [deep], [other]
    assert values_match(deep, deep)
    assert not values_match(deep, other)


@given(st.text(max_size=30), st.text(max_size=30), st.booleans())
def test_no_text_raises(first, second, flag):
    outputs_match(first, second, any_case=flag)
    inputs_match(first, second, is_call=flag)
    json_or_none(first)


NUMBERS = st.from_regex(r"[+-]?[0-9]{0,30}\.?[0-9]{0,30}([eE][+-]?[0-9]{1,30})?", fullmatch=True)


@given(NUMBERS | st.integers().map(lambda n: "1" + "0" * (abs(n) % 9000)), NUMBERS)
def test_no_number_raises(first, second):
    outputs_match(first, second)
    inputs_match(first, second, is_call=False)
    inputs_match(first, second, is_call=True)
