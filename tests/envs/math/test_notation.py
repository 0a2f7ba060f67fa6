"""Answers as text."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.math import notation

CASES = json.loads(Path(__file__).with_name("notation.json").read_text("utf-8"))


@pytest.mark.parametrize(("text", "wanted"), CASES["normalised"])
def test_notations_are_brought_into_one_form(text, wanted):
    assert notation.normalised(text) == wanted


@given(st.text(max_size=200))
def test_any_text_can_be_normalised_in_any_shape(text):
    notation.in_shape_of("(1,2)", notation.without_unit(notation.normalised(text), "cm"))
    notation.same_number(text, text, 0.0)
    notation.last_printed(text)


@given(st.text(max_size=60) | st.text("()[]{},12 and", max_size=60), st.text("1,2 (", max_size=9))
def test_any_text_can_be_counted_and_measured(text, other):
    assert notation.depth(text) <= len(text)
    assert not notation.drops_duplicates(text, text)
    notation.drops_duplicates(text, other)
    for is_quantity in (False, True):
        assert text.startswith(notation.split_unit(text, is_quantity=is_quantity)[0])
    notation.unit_named(text)


@pytest.mark.parametrize(("reference", "candidate", "is_dropped"), CASES["duplicates"])
def test_an_answer_that_is_there_twice_counts_twice(reference, candidate, is_dropped):
    assert notation.drops_duplicates(reference, candidate) is is_dropped


@pytest.mark.parametrize(("text", "name", "power"), CASES["units"])
def test_units_are_read(text, name, power):
    assert notation.split_unit(text, is_quantity=False)[1] == (name, power)


@pytest.mark.parametrize("text", ["5m", "5 m", r"45\%", "x", "n^2", r"3\sqrt{2}", "5 clips", "1,2"])
def test_a_symbol_is_no_unit(text):
    assert notation.split_unit(text, is_quantity=False) == (text, None)


@given(st.integers(-(10**30), 10**30))
def test_whole_numbers_survive(number):
    for written in (str(number), f"{number:,}", rf"\frac{{{2 * number}}}{{2}}", f"{number}.0"):
        assert notation.same_number(notation.normalised(written), str(number), 0.0)
        assert not notation.same_number(notation.normalised(written), str(number + 1), 0.0)


@given(st.integers(10**8, 10**9), st.integers(0, 400), st.integers(1, 99))
def test_precision_is_relative(digits, places, more):
    """However small a decimal is, a millionth of it counts, and not two."""
    number = f"0.{'0' * places}{digits:010}"
    assert notation.same_number(number, f"{number}{0:04}{more:02}", 0.0)
    assert not notation.same_number(
        number, f"0.{'0' * places}{digits + 1 + digits // 500_000:010}", 0.0
    )
    assert not notation.same_number(number, "0", 0.0)


@pytest.mark.parametrize(("text", "unit", "wanted"), CASES["without_unit"])
def test_units_may_be_left_out(text, unit, wanted):
    assert notation.without_unit(text, unit) == wanted


@pytest.mark.parametrize(("reference", "candidate", "wanted"), CASES["shapes"])
def test_lists_take_the_brackets_of_the_reference(reference, candidate, wanted):
    assert notation.in_shape_of(reference, candidate) == wanted


def test_the_last_printed_line_counts():
    assert notation.last_printed("steps\n\n 42 \n\n") == "42"
    assert notation.last_printed(" \n") is None
