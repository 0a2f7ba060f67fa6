"""Answers as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.math.answers import (
    as_integer,
    in_shape_of,
    last_printed,
    normalised,
    without_unit,
)

LISTS = [
    *(
        "1, 320",
        "x = 1, 320",
        "(1,320)",
        "(-1,320)",
        "[-5,320]",
        "[5,320)",
        r"\{-1,320\}",
        "{1,320}",
    ),
    *("1,320,5", "1,32", "0,123", "1,2345", "f(1,320)", r"\left(1,320\right)", "x=1, y=320"),
]
"""Commas between things, not between groups of digits."""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (" $12$ ", "12"),
        (r"\(x\)", "x"),
        ("$$5$$", "5"),
        ("204.", "204"),
        ("10,000", "10000"),
        ("-1,234,567", "-1234567"),
        ("x = 5,320", "x = 5320"),
        (r"\alpha_{1}=-5{,}320.5", r"\alpha_{1}=-5320.5"),
        (r"10,\!000", "10000"),
        (r"5\,320\text{ clips}", r"5320\text{ clips}"),
        (r"\frac{5,320}{3}", r"\frac{5320}{3}"),
        ("5,320/3", "5320/3"),
        ("x > 5,320", "x > 5320"),
        *[(text, text) for text in LISTS],
        ("1,2", "1,2"),
        ("x**2", "x^2"),
        ("Fraction(-1, 2)", r"\frac{-1}{2}"),
        ("1e3", r"1 \cdot 10^{3}"),
        ("2.5E-2", r"2.5 \cdot 10^{-2}"),
        ("3*pi", r"3*\pi "),
        ("\u221a15", r"\sqrt{15}"),
        ("\u22128", "-8"),
        ("x >= 2", r"x \ge  2"),
        (r"$m_{\max }=n$", "m=n"),
        ("$6764$,$10945$", "6764,10945"),
        ("", ""),
    ],
)
def test_notations_are_brought_into_one_form(text, wanted):
    assert normalised(text) == wanted


@given(st.text(max_size=200))
def test_any_text_can_be_normalised_in_any_shape(text):
    in_shape_of("(1,2)", without_unit(normalised(text), "cm"))
    as_integer(text)
    last_printed(text)


@given(st.integers(-(10**30), 10**30))
def test_whole_numbers_survive(number):
    assert as_integer(normalised(str(number))) == number
    assert as_integer(normalised(f"{number:,}")) == number


@pytest.mark.parametrize(
    ("text", "unit", "wanted"),
    [
        ("45 minutes", "minute", "45"),
        (r"45\text{ minutes}", "minute", "45"),
        (r"5\,\mathrm{cm}", "cm", "5"),
        (r"4.2\%", "%", "4.2"),
        ("4.2%", r"\%", "4.2"),
        ("45", "minute", "45"),
        ("45 cm", "", "45 cm"),
    ],
)
def test_units_may_be_left_out(text, unit, wanted):
    assert without_unit(text, unit) == wanted


@pytest.mark.parametrize(
    ("reference", "candidate", "wanted"),
    [
        ("(1,2)", "1,2", "(1,2)"),
        ("(1,2)", "[1, 2]", "(1, 2)"),
        ("1,2", "[1, 2]", "1, 2"),
        ("[1,2]", "[1, 2]", "[1, 2]"),
        ("5", "1,2", "1,2"),
        ("(1,2),(3,4)", "(3,4),(1,2)", "(3,4),(1,2)"),
    ],
)
def test_lists_take_the_brackets_of_the_reference(reference, candidate, wanted):
    assert in_shape_of(reference, candidate) == wanted


def test_the_last_printed_line_counts():
    assert last_printed("steps\n\n 42 \n\n") == "42"
    assert last_printed(" \n") is None
