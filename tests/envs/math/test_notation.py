"""Answers as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.math.notation import (
    as_integer,
    depth,
    drops_duplicates,
    in_shape_of,
    last_printed,
    normalised,
    split_unit,
    unit_named,
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
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("$(2,4)$.", "(2,4)"),
        (r"\(5\).", "5"),
        (r"\[ $k \ge 2.$ \]", r"k \ge 2"),
        (r"$\boxed{\frac{1}{2}.}$.", r"\frac{1}{2}"),
        ("1,2,...", "1,2,..."),
        (r"\boxed{1}+\boxed{2}", r"\boxed{1}+\boxed{2}"),
        (r"x \in (1,2]", "(1,2]"),
        (r"0.\overline{3}", r"\frac{3}{9}"),
        (r"-1.2\overline{34}", r"-\frac{1222}{990}"),
        (r"0.\bar3", r"\frac{3}{9}"),
        (r"0.\dot{1}4285\dot{7}", r"\frac{142857}{999999}"),
        ("0.1(6)", r"\frac{15}{90}"),
        (r"\overline{AB}", r"\overline{AB}"),
        (r"\overline{3}", r"\overline{3}"),
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


@given(st.text(max_size=60) | st.text("()[]{},12 and", max_size=60), st.text("1,2 (", max_size=9))
def test_any_text_can_be_counted_and_measured(text, other):
    assert depth(text) <= len(text)
    assert not drops_duplicates(text, text)
    drops_duplicates(text, other)
    for is_quantity in (False, True):
        assert text.startswith(split_unit(text, is_quantity=is_quantity)[0])
    unit_named(text)


@pytest.mark.parametrize(
    ("reference", "candidate", "is_dropped"),
    [
        ("1,1,2", "1, 2", True),
        ("1,1,2", "2, 1, 1", False),
        ("1,1,2", "1, 2, 2", True),
        ("1,2", "1, 2, 2", True),
        ("1,2", "2 and 1", False),
        ("1,1", r"1 \text{ and } 1", False),
        (r"\{1,1,2\}", r"\{1,2\}", False),
        ("(1,1),(2,2)", "(2,2),(1,1)", False),
        ("(1,1),(1,1)", "(1,1)", True),
        (r"\frac{1}{2},\frac{1}{2}", "0.5, 0.5", False),
        ("5", "5", False),
    ],
)
def test_an_answer_that_is_there_twice_counts_twice(reference, candidate, is_dropped):
    assert drops_duplicates(reference, candidate) is is_dropped


@pytest.mark.parametrize(
    ("text", "name", "power"),
    [
        ("45 minutes", "minute", 1),
        (r"45\,\mathrm{~cm}^{2}", "centimetre", 2),
        (r"3.0\text{ m^{2}}", "metre", 2),
        ("12 square feet", "foot", 2),
        (r"\frac{1}{2} hours", "hour", 1),
        (r"45^{\circ}", "degree", 1),
        (r"5\text{ m}", "metre", 1),
    ],
)
def test_units_are_read(text, name, power):
    assert split_unit(text, is_quantity=False)[1] == (name, power)


@pytest.mark.parametrize("text", ["5m", "5 m", r"45\%", "x", "n^2", r"3\sqrt{2}", "5 clips", "1,2"])
def test_a_symbol_is_no_unit(text):
    assert split_unit(text, is_quantity=False) == (text, None)


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
        ("(1,2)", "[1, 2]", "[1, 2]"),  # perhaps intervals, one of them closed
        ("(1,2,3)", "[1, 2, 3]", "(1, 2, 3)"),
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
