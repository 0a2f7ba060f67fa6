"""Levels by what has been solved: shares by success, and the hardest passed in few episodes."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.curriculum import (
    LevelRecord,
    hardest_passed,
    level_shares,
    next_level,
    with_episodes,
)

records = st.tuples(st.floats(0, 1e6), st.floats(0, 1)).map(
    lambda r: LevelRecord(r[0] * r[1], r[0])
)


@given(st.lists(records, min_size=1, max_size=6), st.floats(0.01, 1))
def test_no_level_is_below_the_floor_and_the_rest_follows_the_variance_of_success(levels, floor):
    shares = level_shares(levels, floor)
    assert sum(shares) == pytest.approx(1)
    equal = floor / len(levels)
    assert min(shares) >= equal
    variances = [record.success * (1 - record.success) for record in levels]
    for one, own in zip(shares, variances, strict=True):
        assert (one - equal) * sum(variances) == pytest.approx((1 - floor) * own, abs=1e-9)


def test_counts_are_of_the_own_level_and_fade():
    played = [(0, True), (0, False), (1, True)]
    before = [LevelRecord(8, 10), LevelRecord(0, 4), LevelRecord(2, 2)]
    assert with_episodes(before, played, 0.5) == [
        LevelRecord(5, 7),
        LevelRecord(1, 3),
        LevelRecord(1, 1),
    ]
    assert LevelRecord(5, 7).success == 6 / 9
    assert LevelRecord().success == 1 / 2


def searched(chances, rng, most=50, batch=4):
    """Look for the hardest level passed; return it, and the episodes that this took."""
    levels = [LevelRecord()] * len(chances)
    while (level := next_level(levels, most)) is not None:
        assert levels[level].num_episodes < most
        ended = [(level, rng.random() < chances[level]) for _ in range(batch)]
        levels = with_episodes(levels, ended)
    return hardest_passed(levels, most), sum(record.num_episodes for record in levels)


@given(num=st.integers(1, 40), num_passed=st.integers(0, 40))
def test_sure_outcomes_are_found_by_halving(num, num_passed):
    num_passed = min(num, num_passed)
    chances = [1.0] * num_passed + [0.0] * (num - num_passed)
    found, num_episodes = searched(chances, random.Random(0))
    assert found == (num_passed - 1 if num_passed else None)
    assert num_episodes <= 4 * math.ceil(math.log2(num + 1))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(0, 999))
def test_the_search_ends_whatever_the_chances_and_names_a_level_that_was_not_failed(chances, seed):
    chances = sorted(chances, reverse=True)
    found, num_episodes = searched(chances, random.Random(seed), most=12)
    assert num_episodes <= 12 * len(chances)
    assert found is None or 0 <= found < len(chances)


def test_levels_that_are_clearly_passed_or_failed_are_told_apart():
    rng = random.Random(7)
    found = [searched([0.95, 0.85, 0.75, 0.25, 0.1], rng) for _ in range(400)]
    assert sum(level == 2 for level, _ in found) >= 340
    assert sum(num for _, num in found) / len(found) < 60


def test_who_passes_a_hard_level_need_not_play_easier_ones():
    assert next_level([LevelRecord(), LevelRecord(), LevelRecord(8, 8)], 50) is None
    assert next_level([LevelRecord(0, 8), LevelRecord(), LevelRecord()], 50) is None
    assert hardest_passed([LevelRecord(0, 8), LevelRecord(), LevelRecord()], 50) is None
    assert next_level([LevelRecord(), LevelRecord(2, 4), LevelRecord()], 4) == 2
