"""How far the log-probabilities of an engine are from those of the trainer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.learning.batch import Targets
from pettingllms_trainers.learning.loss import MicroLoss, TokenStatistics
from pettingllms_trainers.learning.weighted import Scores
from pettingllms_trainers.types import TrainingGroup

__all__ = ["engine_gap", "with_gap_check"]


def engine_gap(
    groups: Sequence[TrainingGroup], scores: Sequence[Scores], limit: float
) -> tuple[float, float]:
    """Return mean and maximum distance of the engine's log-probabilities from recomputed ones.

    Args:
        groups: With the log-probabilities of the engine.
        scores: Those of the trainer, by group.
        limit: Highest mean, in nats.

    Raises:
        UpdateError: The mean is above the limit.
    """
    engine = [value for group in groups for c in group.completions for value in c.logprobs]
    trainer = [value for score in scores for part in score for value in part]
    return _checked(torch.tensor(trainer), torch.tensor(engine), limit)


def with_gap_check(loss: MicroLoss, limit: float) -> MicroLoss:
    """Return a loss that first makes sure that the engine had the weights of the trainer.

    For the first optimizer step of an update whose ratios are to the engine's log-probabilities:
    its forward pass computes those of the trainer anyway.

    Args:
        loss: What it returns.
        limit: As for `engine_gap`, whose error it raises.
    """

    def checked(statistics: TokenStatistics, targets: Targets) -> Tensor:
        _checked(statistics.logprobs, targets.logprobs, limit)
        return loss(statistics, targets)

    return checked


def _checked(trainer: Tensor, engine: Tensor, limit: float) -> tuple[float, float]:
    distances = (trainer.detach() - engine).abs()
    mean = float(distances.mean())
    if mean > limit:  # one that is not finite is reported by the step
        raise UpdateError(
            f"update: the engine's log-probabilities are {mean:.3g} nats from the trainer's on "
            f"average, allowed are {limit:g} (engine.max_logprob_gap). The engine has other "
            "weights, or computes otherwise: restart it with the model of this run; nothing was "
            "trained"
        )
    return mean, float(distances.max())
