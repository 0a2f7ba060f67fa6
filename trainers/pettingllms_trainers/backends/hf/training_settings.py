"""All that decides how a policy learns, and the schedule of its learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pettingllms_trainers.config import LossConfig, OptimizerConfig, ValueConfig

__all__ = ["TrainingSettings", "learning_rate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSettings:
    """All that decides how a policy learns."""

    loss: LossConfig
    """The clipped policy loss."""
    optimizer: OptimizerConfig
    """AdamW, schedule, mini-batches."""
    num_steps: int
    """Train steps of the run: where the decay of the learning rate ends."""
    max_completion_tokens: int
    """Length limit at sampling time; the constant of the length-free loss."""
    seed: int
    """Decides the order of the groups."""
    max_logprob_gap: float = math.inf
    """Mean distance of the trainer's log-probabilities from the engine's that is an error, in
    nats."""
    compares_roles: bool = False
    """Whether the gradients of roles are compared; see `RoleGradients`."""
    value: ValueConfig | None = None
    """How V is learnt; None without one."""
    memory_advice: tuple[str, ...] = ()
    """What helps when memory does not suffice, besides settings of the optimizer."""


def learning_rate(config: OptimizerConfig, step: int, num_steps: int) -> float:
    """Return the learning rate of a train step: linear warm-up, then linear decay.

    Args:
        config: Highest rate, warm-up steps, final fraction.
        step: Train step, from 0; beyond `num_steps` the rate stays at its last value.
        num_steps: Train steps of the run.
    """
    if step < config.num_warmup_steps:
        return config.learning_rate * (step + 1) / config.num_warmup_steps
    length = max(num_steps - 1 - config.num_warmup_steps, 1)
    progress = min((step - config.num_warmup_steps) / length, 1.0)
    return config.learning_rate * (1 - (1 - config.final_fraction) * progress)
