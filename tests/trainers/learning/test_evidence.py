"""Evidence that those who lead are solved in the end."""

import itertools
import math
import random
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.algorithms.lockstep import Evidence

leads = st.integers(-9, 9).map(float)
levels = st.lists(st.tuples(leads, st.booleans()), min_size=2, max_size=6)


@given(levels)
def test_the_variance_is_that_of_all_orders_in_which_a_level_may_be_solved(level):
    """By enumeration: which of the episodes are solved is drawn, and their number is not."""
    xs, ys = zip(*level, strict=True)
    mean = fmean(xs)
    drawn = [
        sum((x - mean) * y for x, y in zip(xs, order, strict=True))
        for order in itertools.permutations(ys)
    ]
    evidence = Evidence().with_level(xs, ys)
    assert evidence.total == pytest.approx(drawn[0], abs=1e-9)
    assert evidence.variance == pytest.approx(pvariance(drawn), abs=1e-9)
    assert fmean(drawn) == pytest.approx(0, abs=1e-9)


def test_levels_are_compared_within_and_not_with_each_other():
    """Easy levels pay more and are solved more often: that says nothing of who leads in a level."""
    easy, hard = [11.0, 12.0, 11.0, 12.0], [1.0, 2.0, 1.0, 2.0]
    evidence = Evidence().with_level(easy, [1, 1, 1, 0]).with_level(hard, [0, 0, 1, 0])
    assert evidence == pytest.approx((-1.0, 0.5, 4.0))
    assert evidence.z == pytest.approx(-math.sqrt(2))


@pytest.mark.parametrize(
    ("xs", "ys"), [([1.0], [True]), ([1.0, 2.0], [True, True]), ([0.1 + 0.2, 0.3], [True, False])]
)
def test_a_level_that_cannot_tell_changes_nothing(xs, ys):
    assert Evidence().with_level(xs, ys).z is None
    found = Evidence(1.0, 0.25).with_level(xs, ys)
    assert found.z == pytest.approx(2)


def test_later_steps_count_more():
    before = Evidence(2.0, 1.0, 8.0).faded(0.5)
    assert before == (1.0, 0.25, 4.0)
    assert before.z == 2, "as sure as before, as long as nothing new is known"


def test_nothing_can_be_told_where_nothing_was_solved_of_late_or_nobody_led():
    one = Evidence().with_level([1.0, 0.0, 0.0], [True, False, False])
    assert one.can_tell
    assert not one.faded(0.9).can_tell, "a single success is forgotten, however it was led up to"
    assert one.with_level([1.0, 1.0], [True, True]).faded(0.9).can_tell, "all is success, too"
    assert not Evidence().with_level([1.0, 1.0], [True, False]).can_tell


@pytest.mark.parametrize(("total", "is_shown"), [(-9, False), (0, False), (2, False), (2.1, True)])
def test_a_lead_counts_from_two_standard_errors_on(total, is_shown):
    assert Evidence(total, 1.0).is_shown is is_shown
    assert not Evidence().is_shown


def test_of_leads_that_mean_nothing_few_are_taken_for_something():
    """Simulated nulls: ten levels of four episodes, a fifth of which are solved."""
    rng = random.Random(1)
    shown = 0
    for _ in range(2000):
        evidence = Evidence()
        for _ in range(10):
            xs = [rng.expovariate(1) for _ in range(4)]
            evidence = evidence.with_level(xs, [rng.random() < 0.2 for _ in xs])
        shown += evidence.is_shown
    assert 0.005 < shown / 2000 < 0.04
