"""One policy update of AT-GRPO: epochs, mini-batches, schedule, reference, statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from pettingllms_trainers.backends.learner import Learner
from pettingllms_trainers.config import LossConfig, OptimizerConfig
from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.loss import Diagnostics, policy_loss
from pettingllms_trainers.minibatch import Scores, WeightedGroup, check_groups, weighted_groups
from pettingllms_trainers.types import (
    Demonstration,
    Imitation,
    ImitationStep,
    TrainingGroup,
    UpdateStats,
)
from pettingllms_trainers.warmstart import imitate

__all__ = ["TrainingSettings", "Updater", "learning_rate"]


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
    """Mean distance of recomputed log-probabilities from the engine's that is an error, in nats."""


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


class Updater:
    """Trains a model on the groups of each train step.

    Args:
        model: The weights; trained in place.
        settings: How.
        precision: ``float32`` or ``bfloat16`` arithmetic.
    """

    def __init__(self, model: PreTrainedModel, settings: TrainingSettings, precision: str) -> None:
        self._model, self._settings, self._precision = model, settings, precision
        self._learner = Learner(model, settings.optimizer, precision)
        self._reference: Mapping[str, Tensor] | None = None
        self._num_updates = 0

    def score(self, groups: Sequence[TrainingGroup]) -> list[Scores]:
        """Return the log-probabilities of the sampled tokens under the present weights."""
        return self._learner.score(groups)

    def update(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        """Train on the groups of one train step.

        Without groups nothing is trained; the schedule goes on, since the train step has passed.

        Raises:
            InvalidArgument: A group cannot be trained on.
            UpdateError: Loss or gradient is not finite.
        """
        check_groups(groups)
        settings, step = self._settings, self._num_updates
        rate = learning_rate(settings.optimizer, step, settings.num_steps)
        if settings.loss.kl_coefficient and self._reference is None:
            self._reference = self._learner.copy_weights()
        self._num_updates += 1
        if not groups:
            return UpdateStats(num_groups=0, skipped="no groups to train on", learning_rate=rate)
        old = reference = None
        if settings.loss.old_logprobs == "recompute":
            old = self._learner.score(groups)
        gap = _engine_gap(groups, old, settings.max_logprob_gap)
        if self._reference is not None:
            with self._learner.holding(self._reference):
                reference = self._learner.score(groups)
        report = _Report(gap)
        for indices in self._mini_batches(len(groups), step):
            chosen = [groups[index] for index in indices]
            weighted = weighted_groups(
                chosen, settings.loss.aggregation, settings.max_completion_tokens
            )
            self._step(_with_scores(weighted, indices, old, reference), rate, report)
        return report.stats(groups, rate)

    def imitate(
        self, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """See `Update.imitate`. The optimizer of the updates is not touched."""
        learner = Learner(self._model, self._settings.optimizer, self._precision)
        return imitate(learner, demonstrations, imitation)

    def _step(self, groups: Sequence[WeightedGroup], rate: float, report: _Report) -> None:
        diagnostics = Diagnostics()
        _, norm = self._learner.step(
            groups,
            lambda statistics, targets: policy_loss(
                statistics, targets, self._settings.loss, diagnostics
            ),
            rate,
        )
        report.add(diagnostics, norm)

    def _mini_batches(self, num_groups: int, step: int) -> Iterator[list[int]]:
        """Yield the groups of each optimizer step; their order depends on seed and step only."""
        optimizer = self._settings.optimizer
        size = optimizer.groups_per_minibatch or num_groups
        for epoch in range(optimizer.num_epochs):
            generator = np.random.default_rng((self._settings.seed, step, epoch))
            order = generator.permutation(num_groups)
            # Cut evenly: a small last mini-batch would take a whole step on a few groups.
            for part in np.array_split(order, math.ceil(num_groups / size)):
                yield part.tolist()

    def state_dict(self) -> dict[str, Any]:
        """Return all that an exact resume needs: tensors on the CPU, numbers, texts."""
        state = self._learner.state_dict() | {"num_updates": self._num_updates}
        if self._reference is not None:
            state["reference"] = {name: value.cpu() for name, value in self._reference.items()}
        return state

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Take only the weights of a state.

        Raises:
            CheckpointError: The state is of another model; nothing was changed.
        """
        self._learner.load_weights(state["model"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken.

        Raises:
            CheckpointError: The state is of another model; nothing was changed.
        """
        reference: Mapping[str, Tensor] | None = state.get("reference")
        if reference is not None:
            self._learner.check_weights(reference)
            device = self._model.device
            reference = {name: value.to(device) for name, value in reference.items()}
        self._learner.load_state_dict(state)
        self._num_updates, self._reference = state["num_updates"], reference


def _with_scores(
    groups: Sequence[WeightedGroup],
    indices: Sequence[int],
    old: Sequence[Scores] | None,
    reference: Sequence[Scores] | None,
) -> list[WeightedGroup]:
    return [
        replace(
            group,
            old_logprobs=None if old is None else old[index],
            reference_logprobs=None if reference is None else reference[index],
        )
        for group, index in zip(groups, indices, strict=True)
    ]


def _engine_gap(
    groups: Sequence[TrainingGroup], old: Sequence[Scores] | None, limit: float
) -> tuple[float, float]:
    """Return mean and greatest distance of the engine's log-probabilities from recomputed ones.

    Raises:
        UpdateError: The mean is above the limit.
    """
    if old is None:
        return 0.0, 0.0
    engine = [value for group in groups for c in group.completions for value in c.logprobs]
    trainer = [value for score in old for part in score for value in part]
    distances = np.abs(np.subtract(engine, trainer))
    mean = float(distances.mean())
    if not mean <= limit:
        raise UpdateError(
            f"update: the engine's log-probabilities are {mean:.3g} nats from the trainer's on "
            f"average, allowed are {limit:g} (engine.max_logprob_gap). The engine has other "
            "weights: restart it with the model of this run; nothing was trained"
        )
    return mean, float(distances.max())


class _Report:
    """Collects the diagnostics of all optimizer steps of one update."""

    def __init__(self, engine_gap: tuple[float, float]) -> None:
        self._engine_gap = engine_gap
        self._steps: list[tuple[Diagnostics, float]] = []

    def add(self, diagnostics: Diagnostics, grad_norm: float) -> None:
        """Add one optimizer step."""
        self._steps.append((diagnostics, grad_norm))

    def stats(self, groups: Sequence[TrainingGroup], rate: float) -> UpdateStats:
        """Return the statistics of the update."""
        sums = np.sum([diagnostics.sums for diagnostics, _ in self._steps], axis=0)
        num_steps = len(self._steps)
        num_trained = sum(diagnostics.num_tokens for diagnostics, _ in self._steps)
        loss, policy_part = (float(value) / num_steps for value in sums[:2])
        entropy, ratio, clipped, kl, approx_kl = (float(value) / num_trained for value in sums[2:])
        lengths = [len(c.token_ids) for group in groups for c in group.completions]
        return UpdateStats(
            num_groups=len(groups),
            num_completions=len(lengths),
            num_tokens=sum(lengths),
            num_optimizer_steps=num_steps,
            loss=loss,
            policy_loss=policy_part,
            entropy=entropy,
            ratio_mean=ratio,
            ratio_max=max(diagnostics.ratio_max for diagnostics, _ in self._steps),
            first_ratio_error=self._steps[0][0].ratio_error,
            engine_gap_mean=self._engine_gap[0],
            engine_gap_max=self._engine_gap[1],
            clip_fraction=clipped,
            kl=kl,
            approx_kl=approx_kl,
            grad_norm=sum(norm for _, norm in self._steps) / num_steps,
            learning_rate=rate,
        )
