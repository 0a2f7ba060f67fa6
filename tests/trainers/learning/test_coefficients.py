"""Coefficients against what is computed by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pettingllms_trainers.config import LossConfig
from pettingllms_trainers.learning.loss import LossCoefficients, moved_reference

KL = LossConfig(kl_coefficient=0.1, kl_target=0.02)
ENTROPY = LossConfig(entropy_coefficient=0.01, entropy_target=0.3)


@pytest.mark.parametrize(
    ("kl", "coefficient"),
    [
        (0.022, 0.11),  # a tenth above: a tenth more
        (0.02, 0.1),
        (0.017, 0.085),
        (2.0, 0.12),  # a fifth at most
        (0.0, 0.08),
        (-1.0, 0.08),  # k1 may be below 0
    ],
)
def test_the_kl_coefficient_follows_its_relative_error(kl, coefficient):
    found = LossCoefficients.of(KL).adapted(KL, kl=kl, entropy=9.0)
    assert found.kl == pytest.approx(coefficient)
    assert found.entropy == 0


def test_the_entropy_bonus_rises_while_entropy_is_low_and_rests_while_it_is_not():
    coefficients, given_ = LossCoefficients.of(ENTROPY), []
    for entropy in (0.2, 0.3, 0.4, 0.4, 0.4, 0.2):
        coefficients = coefficients.adapted(ENTROPY, kl=9.0, entropy=entropy)
        given_.append(coefficients.applied(ENTROPY).entropy_coefficient)
    assert given_ == pytest.approx([0.015, 0.02, 0, 0, 0, 0.01])
    assert coefficients.kl == 0


@given(st.lists(st.floats(0, 10), max_size=30))
def test_without_targets_nothing_changes_and_with_them_nothing_leaves_its_range(measured):
    plain = LossConfig(kl_coefficient=0.1, entropy_coefficient=0.01)
    both = plain.model_copy(update={"kl_target": 0.1, "entropy_target": 1.0})
    for config in (plain, both):
        coefficients = LossCoefficients.of(config)
        for value in measured:
            coefficients = coefficients.adapted(config, kl=value, entropy=value)
            assert coefficients.kl > 0
            assert 0 <= coefficients.entropy <= 1
            if config is plain:
                assert coefficients == LossCoefficients(0.1, 0.01)


def test_a_reference_moves_by_its_share():
    reference, weights = {"a": torch.tensor([1.0, 0.0])}, {"a": torch.tensor([3.0, 4.0])}
    assert moved_reference(reference, weights, 0.25)["a"].tolist() == [1.5, 1.0]
    assert moved_reference(reference, weights, 1.0)["a"].tolist() == [3.0, 4.0]
    assert reference["a"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kl_target": 0.1}, "kl_target = 0.1 would change nothing: without loss.kl_coefficient"),
        ({"reference_every": 5}, "reference_every = 5 would change nothing"),
        ({"kl_coefficient": 0.1, "reference_mix": 0.6}, "it needs loss.reference_every"),
    ],
)
def test_keys_without_effect_are_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        LossConfig(**keys)
