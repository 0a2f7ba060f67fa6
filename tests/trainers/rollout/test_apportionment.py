"""Levels of a train step are shared by weight, as evenly as whole numbers allow."""

import math
from collections import Counter
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_trainers.rollout.sampler import apportioned, level_counts

WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=5)


@given(WEIGHTS, st.integers(0, 200), st.fractions(0, 1).filter(lambda offset: offset < 1))
def test_every_count_is_its_quota_rounded(weights, num, offset):
    counts = apportioned(weights, num, offset)
    assert sum(counts) == num
    for weight, count in zip(weights, counts, strict=True):
        quota = num * Fraction(weight) / sum(map(Fraction, weights))
        assert math.floor(quota) <= count <= math.ceil(quota)


def test_offsets_on_average_give_the_quota():
    """Over all offsets of a fine grid the mean is exact: systematic sampling is unbiased."""
    weights, num, grid = [5, 3, 2], 3, 1000
    total = Counter()
    for index in range(grid):
        total.update(dict(enumerate(apportioned(weights, num, Fraction(index, grid)))))
    assert [total[index] / grid for index in range(3)] == [1.5, 0.9, 0.6]


def test_whole_quotas_are_exact_at_every_step():
    for step in range(50):
        assert level_counts([1, 2, 1], 8, seed=3, step=step, refill=0) == [2, 4, 2]
        assert level_counts([7.5], 8, seed=3, step=step, refill=0) == [8]


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_a_rare_environment_keeps_near_its_quota_over_steps(seed):
    """Less than one level per step: after any number of steps within four levels of the quota."""
    played = 0
    for step in range(200):
        rare, _ = level_counts([1, 15], 8, seed=seed, step=step, refill=0)
        played += rare
        assert abs(played - (step + 1) / 2) <= 4


def test_counts_depend_on_their_arguments_alone():
    counts = [level_counts([1, 2], 4, seed=0, step=step, refill=0) for step in range(30)]
    assert counts == [level_counts([1, 2], 4, seed=0, step=step, refill=0) for step in range(30)]
    assert len({tuple(count) for count in counts}) == 2
    others = [level_counts([1, 2], 4, seed=1, step=step, refill=0) for step in range(30)]
    refills = [level_counts([1, 2], 4, seed=0, step=step, refill=1) for step in range(30)]
    assert counts not in (others, refills)
