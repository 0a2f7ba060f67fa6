"""Coefficients of the loss that follow what an update has measured, and a reference that moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pettingllms_trainers.config import LossConfig

_MAX_ERROR = 0.2
"""The KL coefficient changes by a fifth at most from one update to the next."""
ENTROPY_STEP = 0.005
"""By so much the entropy coefficient changes from one update to the next."""
_MAX_ENTROPY_COEFFICIENT = 1.0


class Steering(NamedTuple):
    """Coefficients in effect in the next update; kept in checkpoints."""

    kl_coefficient: float
    entropy_coefficient: float
    is_entropy_low: bool = True
    """Whether the entropy was at its target or below: else the bonus rests."""

    def applied(self, config: LossConfig) -> LossConfig:
        """Return the loss with these coefficients."""
        bonus = self.entropy_coefficient if self.is_entropy_low else 0.0
        changes = {"kl_coefficient": self.kl_coefficient, "entropy_coefficient": bonus}
        return config.model_copy(update=changes)


def first_steering(config: LossConfig) -> Steering:
    """Return the coefficients of the first update: those of the run file."""
    return Steering(config.kl_coefficient, config.entropy_coefficient)


def steered(steering: Steering, config: LossConfig, *, kl: float, entropy: float) -> Steering:
    """Return the coefficients after an update.

    Args:
        steering: Those in effect during it.
        config: Targets; what has none stays as it is.
        kl: Mean KL to the reference that was measured, in nats per token.
        entropy: Mean entropy that was measured, in nats.

    Source:
        KL: the controller of Ziegler et al. (arXiv 1909.08593, section 2.2). Changed: its gain is 1
        instead of 0.1, since an update here is a whole train step and runs have hundreds. Entropy:
        adaptive control of Skywork-OR1 (arXiv 2505.22312), with its step of 0.005; the option of
        TRL. Changed: one decision per update, from the entropy of the whole update.
    """
    if config.kl_target:
        error = (kl - config.kl_target) / config.kl_target
        error = min(max(error, -_MAX_ERROR), _MAX_ERROR)
        steering = steering._replace(kl_coefficient=steering.kl_coefficient * (1 + error))
    if config.entropy_target:
        is_low = entropy <= config.entropy_target
        moved = steering.entropy_coefficient + (ENTROPY_STEP if is_low else -ENTROPY_STEP)
        moved = min(max(moved, 0.0), _MAX_ENTROPY_COEFFICIENT)
        steering = steering._replace(entropy_coefficient=moved, is_entropy_low=is_low)
    return steering


@torch.no_grad()
def moved_reference(
    reference: Mapping[str, Tensor], weights: Mapping[str, Tensor], mix: float
) -> dict[str, Tensor]:
    """Return the weights of a reference that has moved towards the policy.

    Args:
        reference: Name to weight.
        weights: Of the policy: the same names and shapes.
        mix: Share of the policy's weights, in (0, 1].

    Source:
        TR-DPO (arXiv 2404.09656, eq. 3 and 4): soft updates, and hard ones with a mix of 1; the
        options `ref_model_mixup_alpha` and `ref_model_sync_steps` of TRL.
    """
    return {name: torch.lerp(old, weights[name], mix) for name, old in reference.items()}
