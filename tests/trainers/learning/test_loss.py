"""The loss against its formula, written out token by token; gradients against autograd."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.config import LossConfig
from pettingllms_trainers.learning.batch import Targets
from pettingllms_trainers.learning.loss import (
    Diagnostics,
    LossCoefficients,
    StepDiagnostics,
    TokenStatistics,
    kl_estimate,
    moved_reference,
    policy_loss,
    token_statistics,
    update_figures,
)

M, V = 6, 9


def random_logits(seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(M, V, generator=generator, dtype=dtype) * 2


TARGET_IDS = torch.tensor([0, 3, 8, 3, 1, 7])


def targets_of(old, advantages, **changes):
    values = {
        "token_ids": TARGET_IDS[: len(old)],
        "logprobs": torch.tensor(old),
        "completions": torch.zeros(len(old), dtype=torch.long),
        "advantages": torch.tensor(advantages),
        "weights": torch.full((len(old),), 1 / len(old)),
        "temperatures": None,
        "old_logprobs": None,
        "reference_logprobs": None,
    }
    return Targets(**(values | changes))


def loss_of(new, old, advantages, config, diagnostics=None, entropy=0.0, **changes):
    statistics = TokenStatistics(torch.tensor(new), torch.full((len(new),), entropy))
    return policy_loss(
        statistics, targets_of(old, advantages, **changes), config, diagnostics
    ).item()


@pytest.mark.parametrize("temperature", [None, 0.6])
def test_statistics_are_log_softmax_and_entropy(temperature):
    logits = random_logits(dtype=torch.float32)
    temperatures = None if temperature is None else torch.full((M,), temperature)
    statistics = token_statistics(logits, TARGET_IDS, temperatures)
    distribution = torch.distributions.Categorical(logits=logits / (temperature or 1.0))
    torch.testing.assert_close(statistics.logprobs, distribution.log_prob(TARGET_IDS))
    torch.testing.assert_close(statistics.entropy, distribution.entropy())


@pytest.mark.parametrize("used", [(1.0, 0.0), (0.0, 1.0), (0.7, -0.3)])
def test_gradients_of_statistics_are_those_of_autograd(used):
    own = random_logits(dtype=torch.float32).requires_grad_()
    reference = own.detach().double().requires_grad_()
    statistics = token_statistics(own, TARGET_IDS)
    by_token = torch.linspace(0.5, 2, M)
    parts = [
        weight * (by_token * value).sum()
        for weight, value in zip(used, statistics, strict=True)
        if weight
    ]
    torch.stack(parts).sum().backward()
    distribution = torch.distributions.Categorical(logits=reference)
    expected = used[0] * (by_token * distribution.log_prob(TARGET_IDS)).sum()
    expected = expected + used[1] * (by_token * distribution.entropy()).sum()
    expected.backward()
    torch.testing.assert_close(own.grad, reference.grad.float(), rtol=1e-4, atol=1e-6)


def test_excluded_tokens_do_not_spoil_statistics_and_gradients():
    logits = random_logits(dtype=torch.float32)
    logits[:, 5] = -torch.inf
    logits.requires_grad_()
    statistics = token_statistics(logits, TARGET_IDS)
    (statistics.logprobs.sum() + statistics.entropy.sum()).backward()
    assert statistics.entropy.isfinite().all()
    assert token_statistics(logits.detach(), torch.full((M,), 5)).logprobs.tolist() == [-1e4] * M
    assert logits.grad.isfinite().all()
    assert not logits.grad[:, 5].any()


finite = st.floats(-2, 2)
tokens = st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=M)


@given(tokens, st.floats(0.05, 0.5), st.floats(0.05, 0.5))
def test_the_loss_is_the_clipped_surrogate(values, low, high):
    new, old, advantages = (list(column) for column in zip(*values, strict=True))
    config = LossConfig(clip_low=low, clip_high=high)
    expected = 0.0
    for n, o, advantage in values:
        ratio = math.exp(n - o)
        clipped = min(max(ratio, 1 - low), 1 + high)
        expected -= min(ratio * advantage, clipped * advantage) / len(values)
    assert loss_of(new, old, advantages, config) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "has_gradient"),
    [
        (0.0, 1.0, True),
        (0.25, 1.0, True),
        (0.25, -1.0, True),
        (0.3, 1.0, False),
        (-0.5, 1.0, True),
        (-0.5, -1.0, False),
        (0.3, -0.5, True),
    ],
)
def test_the_clip_cuts_gradients_and_counts_them(log_ratio, advantage, has_gradient):
    new = torch.tensor([log_ratio], requires_grad=True)
    diagnostics = Diagnostics()
    config = LossConfig(clip_low=0.2, clip_high=0.3)
    statistics = TokenStatistics(new, torch.zeros(1))
    policy_loss(statistics, targets_of([0.0], [advantage]), config, diagnostics).backward()
    assert bool(new.grad) == has_gradient
    assert update_figures([diagnostics.total()])["clip_fraction"] == (not has_gradient)


def test_entropy_bonus_and_kl_penalty_are_added_with_their_coefficients():
    config = LossConfig(entropy_coefficient=0.5, kl_coefficient=2.0, kl_estimator="k1")
    reference = torch.tensor([-1.5, -0.25])
    loss = loss_of(
        [-1.0, -1.0], [-1.0, -1.0], [1.0, 3.0], config, entropy=0.75, reference_logprobs=reference
    )
    assert loss == pytest.approx(-2.0 - 0.5 * 0.75 + 2.0 * (0.5 - 0.75) / 2)


@given(st.integers(0, 20), st.floats(0.0, 1.5))
def test_the_corrected_kl_is_the_kl_after_the_policy_has_changed(seed, distance):
    """Over all tokens of the sampling policy: value and gradient, by enumeration; TRL's option."""
    generator = torch.Generator().manual_seed(seed)
    old, reference, change = torch.randn(3, V, generator=generator, dtype=torch.float64)
    old, reference = old.log_softmax(-1), reference.log_softmax(-1)

    def penalty(logits, **options):
        config = LossConfig(kl_coefficient=1.0, **options)
        targets = targets_of(
            old.tolist(), [0.0] * V, token_ids=torch.arange(V), logprobs=old, weights=old.exp(),
            reference_logprobs=reference,
        )  # fmt: skip
        new = logits.log_softmax(-1)
        return policy_loss(TokenStatistics(new, torch.zeros(V)), targets, config)

    logits = (old + distance * change).requires_grad_()
    new = logits.log_softmax(-1)
    (expected,) = torch.autograd.grad((new.exp() * (new - reference)).sum(), logits)
    corrected = penalty(logits, use_bias_correction_kl=True)
    (gradient,) = torch.autograd.grad(corrected, logits)
    exact = (new.exp() * (new - reference)).sum().item()
    assert corrected.item() == pytest.approx(exact, rel=1e-6, abs=1e-9)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-9)
    if distance > 0.5:
        assert penalty(logits).item() != pytest.approx(exact, rel=1e-6)


def test_without_a_cap_recomputed_probabilities_are_the_denominator_and_nothing_else():
    config = LossConfig(importance_cap=0, old_logprobs="recompute")
    old = torch.log(torch.tensor([0.5, 0.8]))
    new, engine = torch.log(torch.tensor([0.55, 0.6])), torch.log(torch.tensor([0.25, 1.0]))
    loss = loss_of(new.tolist(), engine.tolist(), [1.0, -1.0], config, old_logprobs=old)
    assert loss == pytest.approx(-(1.1 - 0.8) / 2), "0.75 is below the clip range of a bad answer"


def test_kl_estimators_agree_with_the_true_divergence():
    policy, reference = random_logits(1).log_softmax(-1)[0], random_logits(2).log_softmax(-1)[0]
    reference = 0.7 * policy + 0.3 * reference
    reference = reference.log_softmax(-1)
    truth = (policy.exp() * (policy - reference)).sum().item()
    means = {
        name: (policy.exp() * kl_estimate(policy, reference, name)).sum().item()
        for name in ("k1", "k2", "k3")
    }
    assert means["k1"] == pytest.approx(truth)
    assert means["k3"] == pytest.approx(truth)
    assert means["k2"] == pytest.approx(truth, rel=0.5)
    assert (kl_estimate(policy, reference, "k3") >= 0).all()


@pytest.mark.parametrize("estimator", ["k1", "k2"])
def test_the_expected_gradient_of_the_penalty_is_that_of_the_divergence(estimator):
    logits = random_logits(1)[0].requires_grad_()
    reference = random_logits(2).log_softmax(-1)[0]
    policy = logits.log_softmax(-1)
    (true,) = torch.autograd.grad((policy.exp() * (policy - reference)).sum(), logits)
    policy = logits.log_softmax(-1)
    # Tokens are drawn from the policy: their shares carry no gradient.
    penalty = (policy.exp().detach() * kl_estimate(policy, reference, estimator)).sum()
    (found,) = torch.autograd.grad(penalty, logits)
    torch.testing.assert_close(found, true)


def test_a_vocabulary_larger_than_the_cache_is_read_row_by_row():
    ids = torch.tensor([0, 1, 300_000])
    statistics = token_statistics(torch.zeros(3, 300_001), ids)
    torch.testing.assert_close(statistics.entropy, torch.full((3,), math.log(300_001)))
    torch.testing.assert_close(statistics.logprobs, -statistics.entropy)


def test_far_away_policies_give_finite_losses():
    config = LossConfig()
    assert loss_of([0.0], [-5000.0], [-1.0], config) == pytest.approx(math.exp(20))
    assert math.isfinite(loss_of([-5000.0], [0.0], [-1.0], config))


def test_diagnostics_of_equal_policies_are_neutral():
    diagnostics = Diagnostics()
    loss_of([-1.0, -2.0], [-1.0, -2.0], [1.0, -1.0], LossConfig(), diagnostics, entropy=0.5)
    loss_of([-1.0], [-2.0], [1.0], LossConfig(), diagnostics, entropy=0.5)
    assert diagnostics.total().num_tokens == 3
    total = diagnostics.total()
    assert update_figures([total, StepDiagnostics(num_tokens=1)]) == pytest.approx(
        {
            "loss": -1.2 / 2,
            "policy_loss": -1.2 / 2,
            "entropy": 1.5 / 4,
            "ratio_mean": (2 + math.e) / 4,
            "ratio_max": math.e,
            "first_ratio_error": math.e - 1,
            "clip_fraction": 1 / 4,
            "clip_low_fraction": 0,
            "clip_high_fraction": 1 / 4,
            "masked_fraction": 0,
            "flat_fraction": 0,
            "importance_mean": 3 / 4,
            "importance_min": 0,
            "importance_max": 1,
            "kl": 0,
            "approx_kl": (math.e - 2) / 4,
        }
    )
    shares = StepDiagnostics.merged([total, total, StepDiagnostics()])
    assert update_figures([shares])["entropy"] == pytest.approx(0.5)
    assert update_figures([shares])["ratio_max"] == pytest.approx(math.e)


def test_what_a_sequence_mask_leaves_out_is_neither_clipped_nor_learnt():
    """Two completions of two tokens: the engine drew the second one otherwise than the trainer."""
    diagnostics = Diagnostics()
    config = LossConfig(
        importance_mode="mask", importance_level="sequence", importance_cap=2.0, ratio="sequence"
    )
    old, advantages = [-1.0, -1.0, -1.0, -1.0], [1.0, 0.0, -1.0, -1.0]
    loss_of(
        [-0.5, -1.0, -4.0, -1.0],
        [-1.0, -1.0, -3.0, -1.0],
        advantages,
        config,
        diagnostics,
        completions=torch.tensor([0, 0, 1, 1]),
        old_logprobs=torch.tensor(old),
    )
    found = update_figures([diagnostics.total()])
    assert found["masked_fraction"] == 2 / 4
    assert found["clip_fraction"] == found["clip_high_fraction"] == 1 / 4
    assert found["flat_fraction"] == 1 / 4
    assert (found["importance_min"], found["importance_max"]) == (0.0, 1.0)
    # k3 of the tokens' own ratios, e^0.5 and e^-3, and not of the geometric means.
    of_tokens = [math.exp(x) - 1 - x for x in (0.5, 0.0, -3.0, 0.0)]
    assert found["approx_kl"] == pytest.approx(sum(of_tokens) / 4)


def test_a_rank_without_tokens_is_no_minimum():
    diagnostics = Diagnostics()
    loss_of([-1.0], [-1.0], [1.0], LossConfig(), diagnostics)
    merged = StepDiagnostics.merged([StepDiagnostics(), diagnostics.total()])
    assert update_figures([merged])["importance_min"] == 1.0


SEVERAL = st.integers(1, 4).flatmap(
    lambda count: st.lists(
        st.tuples(
            st.floats(-2, 2),  # advantage of the completion
            st.lists(st.tuples(st.floats(-4, 0), st.floats(-4, 0)), min_size=1, max_size=4),
        ),
        min_size=count,
        max_size=count,
    )
)


def completions_of(parts):
    """New and old log-probabilities, advantages and completion numbers, token by token."""
    new = [pair[0] for _, pairs in parts for pair in pairs]
    old = [pair[1] for _, pairs in parts for pair in pairs]
    advantages = [advantage for advantage, pairs in parts for _ in pairs]
    numbers = [index for index, (_, pairs) in enumerate(parts) for _ in pairs]
    return new, old, advantages, torch.tensor(numbers)


@given(parts=SEVERAL)
def test_sequence_ratios_are_geometric_means_over_completions(parts):
    new, old, advantages, numbers = completions_of(parts)
    config = LossConfig(ratio="sequence", clip_low=0.1, clip_high=0.3)
    expected = 0.0
    for advantage, pairs in parts:
        ratio = math.exp(sum(a - b for a, b in pairs) / len(pairs))
        worse = min(ratio * advantage, min(max(ratio, 0.9), 1.3) * advantage)
        expected -= len(pairs) * worse / len(new)
    found = loss_of(new, old, advantages, config, completions=numbers)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


@given(parts=SEVERAL)
def test_cispo_weighs_log_probabilities_and_keeps_every_gradient(parts):
    new, old, advantages, numbers = completions_of(parts)
    config = LossConfig(objective="cispo", clip_high=0.5)
    logprobs = torch.tensor(new, requires_grad=True)
    statistics = TokenStatistics(logprobs, torch.zeros(len(new)))
    targets = targets_of(old, advantages, completions=numbers)
    policy_loss(statistics, targets, config).backward()
    expected = [
        -min(math.exp(a - b), 1.5) * advantage / len(new)
        for a, b, advantage in zip(new, old, advantages, strict=True)
    ]
    torch.testing.assert_close(logprobs.grad, torch.tensor(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "has_gradient"),
    [(5.0, -2.0, 6.0, False), (2.0, -1.0, 2.0, True), (5.0, 1.0, -1.2, False)],
)
def test_the_dual_clip_bounds_what_one_token_can_weigh(ratio, advantage, expected, has_gradient):
    config, diagnostics = LossConfig(dual_clip=3.0), Diagnostics()
    logprobs = torch.tensor([math.log(ratio)], requires_grad=True)
    statistics = TokenStatistics(logprobs, torch.zeros(1))
    loss = policy_loss(statistics, targets_of([0.0], [advantage]), config, diagnostics)
    loss.backward()
    assert loss.item() == pytest.approx(expected)
    assert bool(logprobs.grad.any()) is has_gradient
    assert update_figures([diagnostics.total()])["clip_fraction"] == float(not has_gradient)


@given(parts=SEVERAL, level=st.sampled_from(["token", "sequence"]))
def test_weights_for_the_engine_are_cut_or_left_out(parts, level):
    """Ratios are 1: what is left of the loss are the weights."""
    trainer, engine, advantages, numbers = completions_of(parts)
    weights = []
    for _, pairs in parts:
        product = math.exp(sum(a - b for a, b in pairs))
        weights += [product if level == "sequence" else math.exp(a - b) for a, b in pairs]
    for mode in ("truncate", "mask"):
        floor = {"importance_floor": 0.5} if mode == "mask" else {}
        config = LossConfig(
            importance_cap=1.5, importance_level=level, importance_mode=mode, **floor
        )
        kept = [min(w, 1.5) if mode == "truncate" else w * (0.5 <= w <= 1.5) for w in weights]
        expected = -sum(w * a for w, a in zip(kept, advantages, strict=True)) / len(trainer)
        found = loss_of(
            trainer,
            engine,
            advantages,
            config,
            completions=numbers,
            old_logprobs=torch.tensor(trainer),
        )
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)


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
    coefficients = LossCoefficients.of(ENTROPY)
    given_ = [coefficients.applied(ENTROPY).entropy_coefficient]
    for entropy in (0.2, 0.3, 0.4, 0.4, 0.4, 0.2):
        coefficients = coefficients.adapted(ENTROPY, kl=9.0, entropy=entropy)
        given_.append(coefficients.applied(ENTROPY).entropy_coefficient)
    assert given_ == pytest.approx([0.01, 0.015, 0.02, 0, 0, 0, 0.01])
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
