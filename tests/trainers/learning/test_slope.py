"""The slope of success on what was earned, within groups."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import linregress

from pettingllms_trainers.learning.slope import Slope

values = st.floats(-10, 10, allow_nan=False).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(values, values), min_size=3, max_size=30))
def test_of_one_group_it_is_a_linear_regression_without_a_degree_of_freedom_more(pairs):
    xs, ys = zip(*pairs, strict=True)
    slope = Slope().with_group(xs, ys)
    assume(len(set(xs)) > 1 and len(set(ys)) > 1)
    found = linregress(xs, ys)
    assume(found.stderr > 1e-6)
    assert slope.num == len(pairs) - 1
    assert slope.t == pytest.approx(found.slope / found.stderr, rel=1e-4, abs=1e-6)


def test_groups_are_compared_within_and_not_with_each_other():
    """Easy levels pay more and are solved more often: that says nothing of who leads in a level."""
    easy, hard = [11, 12, 11, 12], [1, 2, 1, 2]
    slope = Slope().with_group(easy, [1, 1, 1, 0]).with_group(hard, [0, 0, 1, 0])
    assert slope == (6, 2.0, -1.0, 1.5)
    assert slope.t == pytest.approx(-1 / (2 * (1.5 - 0.5) / 5) ** 0.5)


def test_kept_evidence_has_the_same_slope_and_is_less_sure():
    slope = Slope().with_group([0, 1, 2, 3], [0, 0, 1, 1])
    assert slope.kept(0.5) == (1.5, 2.5, 1.0, 0.5)
    assert 0 < slope.kept(0.5).t < slope.t


@pytest.mark.parametrize(
    ("slope", "may_be"),
    [
        (Slope(), True),
        (Slope(100, 0.0, 0.0, 25.0), True),
        (Slope(100, 25.0, 0.0, 0.0), True),
        (Slope(16, 1.0, 0.0, 1.0), True),  # sure to half a correlation only
        (Slope(100, 1.0, 0.0, 1.0), False),
        (Slope(100, 1.0, 0.11, 1.0), True),
        (Slope(400, 1.0, 0.12, 1.0), True),  # below what is asked for, and surely above 0
        (Slope(400, 1.0, 0.09, 1.0), False),
        (Slope(100, 1.0, -0.5, 1.0), False),
    ],
)
def test_doubt_keeps_a_lead_and_evidence_decides(slope, may_be):
    assert slope.may_be(0.3) is may_be
