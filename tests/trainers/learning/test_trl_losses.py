"""The same batch through our loss and through that of TRL's `GRPOTrainer`: value and gradient.

Skipped without TRL; `make -f tests/adapters.mk losses` tests with it.
"""

import importlib
import os
import tomllib
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pettingllms_trainers.config import LossConfig
from pettingllms_trainers.learning.batch import micro_batches, mini_batch, parts_of
from pettingllms_trainers.learning.loss import LossCoefficients, TokenStatistics, policy_loss
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup

pytestmark = pytest.mark.filterwarnings("default")

B, T = 6, 5
LENGTHS = (5, 3, 1, 4, 5, 2)
ADVANTAGES = (1.3, -0.7, 0.4, -1.9, 0.0, 2.2)
MASK = torch.tensor([[float(t < length) for t in range(T)] for length in LENGTHS])

CASES = tomllib.loads(Path(__file__).with_name("trl_losses.toml").read_text())


@pytest.fixture(scope="module")
def trainer_class():
    """TRL's trainer, of which the loss alone is asked."""
    if "trl" not in os.environ.get("PETTINGLLMS_ADAPTERS", "").split():
        pytest.importorskip("trl", reason="needs trl; `make -f tests/adapters.mk losses`")
    return importlib.import_module("trl.trainer.grpo_trainer").GRPOTrainer


def drawn():
    """Log-probabilities ``[B, T]``: of the policy, before the update, of engine and reference."""
    generator = torch.Generator().manual_seed(6)
    new = -torch.rand(B, T, generator=generator) * 3 - 0.1
    old, engine, reference = (
        (new + 0.4 * torch.randn(B, T, generator=generator)).clamp(max=-0.01) for _ in range(3)
    )
    entropies = torch.rand(B, T, generator=generator)
    return new, old, engine, reference, entropies


def ours(config, new, old, engine, reference, entropies):
    """The loss and its gradient ``[B, T]``."""

    def rows(values):
        return [tuple(row[:n]) for row, n in zip(values.tolist(), LENGTHS, strict=True)]

    # Token ids are places in the flattened [B, T] tensors.
    ids = torch.arange(B * T).view(B, T)
    groups = [
        TrainingGroup(
            role="r", prompt_ids=(7, index), completions=(TrainingCompletion(own, lp, advantage),)
        )
        for index, (own, lp, advantage) in enumerate(
            zip(rows(ids), rows(engine), ADVANTAGES, strict=True)
        )
    ]
    scores = [[(row,) for row in rows(values)] for values in (old, reference)]
    parts = parts_of(groups, *scores, by_completion=False)
    learnt = mini_batch(parts, config.aggregation, T)
    (batch,) = micro_batches(learnt, max_tokens=10_000, is_packed=False)
    variable = new.clone().requires_grad_()
    places = batch.targets[0].token_ids
    statistics = TokenStatistics(variable.flatten()[places], entropies.flatten()[places])
    loss = policy_loss(statistics, batch.targets[0], config)
    loss.backward()
    return loss.detach(), variable.grad


class Theirs:
    """What `GRPOTrainer._compute_loss` reads of its trainer."""

    def __init__(self, trainer_class, **options):
        self.weights = (options.pop("mode", None), options.pop("low", None), options.pop("high", 0))
        arguments = {
            "use_bias_correction_kl": options.pop("use_bias_correction_kl", False),
            "delta": options.pop("delta", None),
            "steps_per_generation": 1,
            "entropy_target": options.pop("entropy_target", 0.0),
            "entropy_coef_delta": 0.005,
            "entropy_coef_min": 0.0,
            "entropy_coef_max": 1.0,
        }
        whole = {
            "args": SimpleNamespace(**arguments),
            "loss_type": "dapo",
            "importance_sampling_level": "token",
            "epsilon_low": 0.2,
            "epsilon_high": 0.2,
            "beta": 0.0,
            "entropy_coef": 0.0,
            "use_adaptive_entropy": bool(arguments["entropy_target"]),
            "use_vllm": self.weights[0] is not None,
            "vllm_importance_sampling_correction": True,
            "aux_loss_enabled": False,
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "max_completion_length": T,
            "current_gradient_accumulation_steps": 1,
            "model": SimpleNamespace(training=True),
            "_metrics": defaultdict(lambda: defaultdict(list)),
            "_entropy_window_stats": None,
            "_last_world_entropy": 0.0,
            "accelerator": SimpleNamespace(
                num_processes=1,
                sync_gradients=True,
                gather=lambda value: value,
                reduce=lambda value, reduction: value,
            ),
            **options,
        }
        whole["_entropy_bonus_enabled"] = bool(whole["entropy_coef"]) or bool(
            arguments["entropy_target"]
        )
        self.trainer = SimpleNamespace(**whole)
        self.compute = trainer_class._compute_loss

    def loss(self, new, old, engine, reference, entropies):
        variable = new.clone().requires_grad_()
        asked = (variable, entropies, None)
        self.trainer._get_per_token_logps_and_entropies = lambda *args, **named: asked
        inputs = {
            "prompt_ids": torch.zeros(B, 1, dtype=torch.long),
            "prompt_mask": torch.ones(B, 1),
            "completion_ids": torch.zeros(B, T, dtype=torch.long),
            "completion_mask": MASK,
            "advantages": torch.tensor(ADVANTAGES),
            "old_per_token_logps": old,
            "ref_per_token_logps": reference,
            "num_items_in_batch": MASK.sum(),
            "importance_sampling_ratio": self.ratio((old - engine) * MASK),
        }
        loss = self.compute(self.trainer, None, inputs)
        loss.backward()
        return loss.detach(), variable.grad

    def ratio(self, difference):
        """The weights that TRL computes when it samples, for a mode of its option."""
        mode, low, high = self.weights
        if mode is None:
            return None
        if mode.startswith("sequence"):
            difference = difference.sum(-1, keepdim=True)
        ratio = difference.exp()
        if mode.endswith("truncate"):
            return ratio.clamp(max=high)
        return ratio * ((ratio >= low) & (ratio <= high))


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_those_of_trl(trainer_class, name):
    batch = drawn()
    config = LossConfig(**{"importance_cap": 0.0, **CASES[name]["ours"]})
    loss, gradient = ours(config, *batch)
    expected, slope = Theirs(trainer_class, **CASES[name]["theirs"]).loss(*batch)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient * MASK, slope * MASK, rtol=1e-5, atol=1e-6)
    if name != "token clip":
        plain, _ = ours(LossConfig(importance_cap=0.0), *batch)
        assert abs(loss - plain) > 1e-4, "the case is another loss than the default"


def test_the_entropy_bonus_is_steered_as_in_trl(trainer_class):
    config = LossConfig(entropy_coefficient=0.01, entropy_target=0.4, importance_cap=0.0)
    theirs = Theirs(trainer_class, entropy_coef=0.01, entropy_target=0.4)
    new, old, engine, reference, entropies = drawn()
    coefficients = LossCoefficients.of(config)
    for factor in (0.5, 0.6, 1.0, 1.2, 0.5, 0.5, 1.4, 1.4, 1.4, 1.4, 0.1):
        batch = (new, old, engine, reference, entropies * factor)
        loss, _ = ours(coefficients.applied(config), *batch)
        expected, _ = theirs.loss(*batch)
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
        measured = float((entropies * factor * MASK).sum() / MASK.sum())
        coefficients = coefficients.adapted(config, kl=0.0, entropy=measured)
        assert coefficients.entropy == pytest.approx(theirs.trainer.entropy_coef)
