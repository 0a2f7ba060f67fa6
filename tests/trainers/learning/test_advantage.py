"""Advantages of one group: zero sums, order, no signal."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.learning.groups import (
    batch_scale,
    grpo,
    has_signal,
    leave_one_out,
)
from pettingllms_trainers.learning.returns import returns_to_go

groups = st.lists(st.floats(-100, 100), min_size=1, max_size=16)
algorithms = st.builds(
    AtGrpo,
    baseline=st.sampled_from(["mean", "leave_one_out"]),
    norm=st.sampled_from(["std", "batch", "none"]),
)


@given(algorithms, groups)
def test_advantages_sum_to_zero(algorithm, rewards):
    advantages = algorithm.advantages(rewards)
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-6)


@given(algorithms, groups, st.randoms(use_true_random=False))
def test_advantages_move_with_their_candidates(algorithm, rewards, rng):
    order = list(range(len(rewards)))
    rng.shuffle(order)
    moved = algorithm.advantages([rewards[i] for i in order])
    straight = algorithm.advantages(rewards)
    assert moved == [straight[i] for i in order]


@given(algorithms, groups, st.floats(-10, 10))
def test_a_constant_added_to_all_rewards_changes_nothing(algorithm, rewards, constant):
    if max(rewards) - min(rewards) < 1e-3:
        return
    moved = algorithm.advantages([reward + constant for reward in rewards])
    assert moved == pytest.approx(algorithm.advantages(rewards), rel=1e-6, abs=1e-6)


@given(groups)
def test_better_candidates_have_greater_advantages(rewards):
    advantages = grpo(rewards)
    for a, reward in zip(advantages, rewards, strict=True):
        for b, other in zip(advantages, rewards, strict=True):
            assert a >= b or reward < other


def test_the_only_success_keeps_its_signal():
    """Trap 10."""
    assert has_signal([0, 0, 0, 1])
    assert grpo([0, 0, 0, 1]) == pytest.approx([-(3**-0.5)] * 3 + [3**0.5])
    assert grpo([0, 0, 0, 1], norm="none") == [-0.25, -0.25, -0.25, 0.75]


@pytest.mark.parametrize("rewards", [[1, 1, 1, 1], [0.3, 0.1 + 0.2], [5.0], [-2.0, -2.0]])
def test_equal_rewards_give_exact_zeros(rewards):
    assert not has_signal(rewards)
    assert grpo(rewards) == [0.0] * len(rewards)
    assert leave_one_out(rewards, norm="std") == [0.0] * len(rewards)


@pytest.mark.parametrize(
    ("size", "rounding"),
    [(0.0, 1e-9), (0.5, 0.9e-9), (1e6, 0.9e-3), (-1e6, 0.9e-3)],
)
def test_rounding_is_relative_to_the_rewards(size, rounding):
    assert not has_signal([size, size + rounding])
    assert has_signal([size, size + 1.5 * rounding])


def test_an_empty_group_has_no_signal():
    assert not has_signal([])
    assert grpo([]) == []


def test_std_norm_has_unit_population_variance():
    advantages = grpo([1.0, 2.0, 4.0, 9.0])
    assert math.fsum(a * a for a in advantages) / 4 == pytest.approx(1.0)


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=8))
def test_leave_one_out_is_the_distance_to_the_mean_of_the_others(rewards):
    expected = [reward - (sum(rewards) - reward) / (len(rewards) - 1) for reward in rewards]
    assert leave_one_out(rewards) == pytest.approx(expected, abs=1e-9)


def test_the_baseline_is_that_of_the_algorithmuration():
    for baseline, expected in (("mean", [-1.0, 1.0]), ("leave_one_out", [-2.0, 2.0])):
        algorithm = AtGrpo(baseline=baseline, norm="none")
        assert algorithm.advantages([1.0, 3.0]) == expected


def test_the_scale_of_a_batch_is_its_root_mean_square():
    assert batch_scale([3.0, -4.0, 0.0, 0.0]) == 2.5
    assert batch_scale([]) == 1.0


def test_returns_to_go():
    assert returns_to_go([1.0, 2.0, -4.0]) == [-1.0, -2.0, -4.0]
    assert returns_to_go([1.0, 2.0, -4.0], 0.5) == [1.0, 0.0, -4.0]
    assert returns_to_go([]) == []
