"""Supervised steps on demonstrations, before reinforcement learning begins.

Source: the cold start of DeepSeek-R1 (arXiv 2501.12948, section 2.3.1): a policy that never earns
a reward has no gradient, so it first imitates. Changed: demonstrations come from reference policies
of the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.learner import Learner
from pettingllms_trainers.batch import Targets
from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.loss import TokenStatistics
from pettingllms_trainers.minibatch import weighted_groups
from pettingllms_trainers.types import SampledCompletion, TrainingGroup

__all__ = ["Demonstration", "WarmStartStep", "warm_start"]


class Demonstration(NamedTuple):
    """A prompt and the answer to imitate."""

    prompt_ids: tuple[int, ...]
    """Token ids of the prompt, as the policy will see it when it plays."""
    completion_ids: tuple[int, ...]
    """Token ids of the answer, the end token included."""


class WarmStartStep(NamedTuple):
    """What one supervised step did."""

    step: int
    """From 0."""
    loss: float
    """Mean negative log-likelihood per completion token before the step, in nats."""
    grad_norm: float
    """Before clipping."""


def warm_start(
    model: PreTrainedModel,
    demonstrations: Sequence[Demonstration],
    *,
    num_steps: int,
    batch_size: int,
    optimizer: OptimizerConfig,
    precision: str = "float32",
    seed: int = 0,
    on_step: Callable[[WarmStartStep], None] | None = None,
) -> list[WarmStartStep]:
    """Fit a model to demonstrations: maximum likelihood of the completion tokens.

    Every demonstration is seen once before any is seen again. The learning rate falls linearly to a
    tenth. Equal arguments and weights give equal results.

    Args:
        model: Trained in place; prepared by `backends.attention.use_layouts` if packing is on.
        demonstrations: What to imitate.
        num_steps: Optimizer steps.
        batch_size: Demonstrations per step.
        optimizer: Learning rate, betas, clipping, packing, micro-batch size.
        precision: ``float32`` or ``bfloat16`` arithmetic.
        seed: Decides the order.
        on_step: Called after every step.

    Returns:
        One entry per step.

    Raises:
        InvalidArgument: There is no demonstration, or one is empty.
        UpdateError: Loss or gradient is not finite.
    """
    groups = [_as_group(demonstration) for demonstration in demonstrations]
    if not groups and num_steps:
        raise InvalidArgument(
            "demonstrations", "none", "at least one",
            "set the demonstrators of the warm start, or its number of steps to 0",
        )  # fmt: skip
    learner = Learner(model, optimizer, precision)
    order: list[int] = []
    epoch = 0
    history: list[WarmStartStep] = []
    for step in range(num_steps):
        while len(order) < batch_size:
            generator = np.random.default_rng((seed, epoch))
            order += generator.permutation(len(groups)).tolist()
            epoch += 1
        chosen, order = [groups[index] for index in order[:batch_size]], order[batch_size:]
        rate = optimizer.learning_rate * (1 - 0.9 * step / num_steps)
        loss, norm = learner.step(weighted_groups(chosen, "token_mean", 1), _likelihood, rate)
        history.append(WarmStartStep(step, loss, norm))
        if on_step is not None:
            on_step(history[-1])
    return history


def _likelihood(statistics: TokenStatistics, targets: Targets) -> Tensor:
    return -(statistics.logprobs * targets.weights).sum()


def _as_group(demonstration: Demonstration) -> TrainingGroup:
    if not demonstration.prompt_ids or not demonstration.completion_ids:
        raise InvalidArgument(
            "demonstrations", "one with an empty prompt or completion", "token ids in both",
            "end every demonstrated answer with the end token",
        )  # fmt: skip
    logprobs = (0.0,) * len(demonstration.completion_ids)
    completion = SampledCompletion(demonstration.completion_ids, logprobs, 0.0)
    return TrainingGroup(role="", prompt_ids=demonstration.prompt_ids, completions=(completion,))
