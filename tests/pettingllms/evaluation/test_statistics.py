"""Intervals: against scipy, against brute force, and in how many cases they hold."""

import importlib
import itertools
import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument
from pettingllms.evaluation import Interval, clustered_share, wilson_interval
from pettingllms.evaluation.statistics import (
    correlation_of,
    mean_interval,
    paired_share_difference,
    pass_at_k,
    sign_test,
)


@pytest.fixture(scope="module")
def stats():
    """Of scipy, which takes half a second to import: no test pays that within its deadline."""
    return importlib.import_module("scipy.stats")


COUNTS = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(COUNTS)
def test_wilson_is_that_of_scipy(stats, counts):
    hits, total = counts
    expected = stats.binomtest(hits, total).proportion_ci(method="wilson")
    low, high = wilson_interval(hits / total, total)
    assert low == pytest.approx(expected.low, abs=1e-12)
    assert high == pytest.approx(expected.high, abs=1e-12)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=40), st.integers(1, 8))
def test_repeating_the_same_outcome_adds_no_certainty(outcomes, plays):
    once = clustered_share(outcomes, [1] * len(outcomes))
    repeated = clustered_share([plays * x for x in outcomes], [plays] * len(outcomes))
    assert repeated == pytest.approx(once)


def test_the_interval_holds_when_plays_of_a_level_depend_on_each_other():
    """Levels are easy (0.9) or hard (0.1): naive Wilson intervals would hold far too rarely."""
    rng = random.Random(1)
    held = naive_held = 0
    for _ in range(400):
        hits = []
        for _ in range(40):
            chance = rng.choice((0.1, 0.9))
            hits.append(sum(rng.random() < chance for _ in range(8)))
        value, low, high = clustered_share(hits, [8] * 40)
        held += low <= 0.5 <= high
        naive = wilson_interval(value, 320)
        naive_held += naive[0] <= 0.5 <= naive[1]
    assert 0.91 <= held / 400 <= 0.99
    assert naive_held / 400 < 0.75


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_solved_play(plays, data):
    num_plays, num_solved = plays
    k = data.draw(st.integers(1, num_plays))
    outcomes = [True] * num_solved + [False] * (num_plays - num_solved)
    subsets = list(itertools.combinations(outcomes, k))
    expected = sum(map(any, subsets)) / len(subsets)
    assert pass_at_k(num_plays, num_solved, k) == pytest.approx(expected)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30))
def test_mean_interval_is_that_of_scipy(stats, values):
    found = mean_interval(values)
    assert found.low <= found.value <= found.high
    if max(values) - min(values) > 1e-3:
        expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        assert found.low == pytest.approx(expected.low, abs=1e-6)
        assert found.high == pytest.approx(expected.high, abs=1e-6)


def test_one_value_has_no_interval_and_equal_ones_have_no_width():
    assert mean_interval([3.0]) == Interval(3.0, -math.inf, math.inf)
    assert mean_interval([0.1] * 3) == Interval(0.1, 0.1, 0.1)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=20),
    st.sampled_from([1, 3, 5]),
)
@example([(1, 2)] * 6, 5)
def test_correlation_is_pearsons(stats, pairs, num_plays):
    first, second = zip(*((one / num_plays, two / num_plays) for one, two in pairs), strict=True)
    found = correlation_of(first, second)
    if len(set(first)) > 1 and len(set(second)) > 1:
        assert found == pytest.approx(stats.pearsonr(first, second).statistic, abs=1e-9)
    else:
        assert found == 0


def difference_of(both, only_second, only_first, neither):
    first = [1] * both + [0] * only_second + [1] * only_first + [0] * neither
    second = [1] * both + [1] * only_second + [0] * only_first + [0] * neither
    ones = [1] * len(first)
    return paired_share_difference(
        clustered_share(first, ones), clustered_share(second, ones), correlation_of(first, second)
    )


@given(*[st.integers(0, 30)] * 4)
def test_paired_difference_is_that_of_the_table_of_counts(stats, both, second, first, neither):
    """The formula for the counts of a 2 x 2 table, with scipy's Wilson limits."""
    total = both + second + first + neither
    if total == 0:
        return
    p, q = (both + first) / total, (both + second) / total
    limits = [
        stats.binomtest(count, total).proportion_ci(method="wilson")
        for count in (both + first, both + second)
    ]
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    phi = (both * neither - first * second) / math.sqrt(margins) if margins else 0.0
    below = (q - limits[1].low, limits[0].high - p)
    above = (limits[1].high - q, p - limits[0].low)
    low, high = (math.sqrt(max(0.0, x * x - 2 * phi * x * y + y * y)) for x, y in (below, above))
    found = difference_of(both, second, first, neither)
    expected = (q - p, max(-1.0, q - p - low), min(1.0, q - p + high))
    assert found == pytest.approx(expected, abs=1e-7)


@given(st.integers(0, 40), st.integers(0, 40))
def test_sign_test_is_exact(better, worse):
    total = better + worse
    extreme = min(better, worse)
    tail = sum(math.comb(total, i) for i in range(extreme + 1)) / 2**total
    assert sign_test(better, worse) == pytest.approx(min(1.0, 2 * tail))


@pytest.mark.parametrize(
    "call",
    [
        lambda: wilson_interval(1.1, 5),
        lambda: wilson_interval(0.5, 0),
        lambda: clustered_share([], []),
        lambda: clustered_share([1], [1, 1]),
        lambda: pass_at_k(2, 1, 3),
        lambda: pass_at_k(2, 3, 1),
        lambda: mean_interval([]),
    ],
)
def test_impossible_numbers_are_refused(call):
    with pytest.raises(InvalidArgument):
        call()
