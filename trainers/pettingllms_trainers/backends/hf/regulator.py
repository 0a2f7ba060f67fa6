"""What holds the updates of a policy back: coefficients that follow measurements, a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from pettingllms_trainers.backends.hf.weights import Weights
from pettingllms_trainers.config import LossConfig
from pettingllms_trainers.learning.steering import (
    Steering,
    first_steering,
    moved_reference,
    steered,
)
from pettingllms_trainers.types import UpdateStats

__all__ = ["Regulator"]


class Regulator:
    """The loss of a policy's updates, as it changes from one to the next.

    Args:
        weights: Of the policy.
        config: The loss of the run file.
    """

    def __init__(self, weights: Weights, config: LossConfig) -> None:
        self._weights, self._config = weights, config
        self._steering = first_steering(config)
        self.reference: Mapping[str, Tensor] | None = None
        """Weights that updates are held near to; None without a KL penalty."""

    @property
    def loss(self) -> LossConfig:
        """The loss with the coefficients that are in effect."""
        return self._steering.applied(self._config)

    def begin(self, step: int) -> None:
        """Begin the update of a train step, from 0: the reference is taken, or moves."""
        config = self._config
        if not config.kl_coefficient:
            return
        if self.reference is None:
            self.reference = self._weights.copy()
        elif config.reference_every and step % config.reference_every == 0:
            own = self._weights.copy()
            self.reference = moved_reference(self.reference, own, config.reference_mix)

    def end(self, stats: UpdateStats) -> UpdateStats:
        """Let the coefficients follow an update; return its statistics with those that it had."""
        loss = self.loss
        self._steering = steered(self._steering, self._config, kl=stats.kl, entropy=stats.entropy)
        return replace(
            stats, kl_coefficient=loss.kl_coefficient, entropy_coefficient=loss.entropy_coefficient
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps. Collective."""
        state: dict[str, Any] = {"steering": tuple(self._steering)}
        if self.reference is not None:
            state["reference"] = self._weights.export_copy(self.reference)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned. Collective.

        Raises:
            CheckpointError: It is of another model; nothing was changed.
        """
        reference = state.get("reference")
        self.reference = None if reference is None else self._weights.import_copy(reference)
        self._steering = Steering(*state["steering"])
