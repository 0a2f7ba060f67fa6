"""Supervised steps on demonstrations, before reinforcement learning begins.

Source: the cold start of DeepSeek-R1 (arXiv 2501.12948, section 2.3.1): a policy that never earns
a reward has no gradient, so it first imitates. Changed: demonstrations come from scripted policies
of the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.learner import Learner
from pettingllms_trainers.learning.batch import Targets
from pettingllms_trainers.learning.loss import TokenStatistics
from pettingllms_trainers.learning.minibatch import weighted_groups
from pettingllms_trainers.types import (
    Demonstration,
    Imitation,
    ImitationStep,
    TrainingCompletion,
    TrainingGroup,
)

__all__ = ["imitate"]


def imitate(
    learner: Learner,
    demonstrations: Sequence[Demonstration],
    imitation: Imitation,
) -> Iterator[ImitationStep]:
    """Fit a model to demonstrations: maximum likelihood of the completion tokens.

    Every demonstration is seen once before any is seen again. The learning rate falls linearly to a
    tenth. Equal arguments and weights give equal results.

    Args:
        learner: Has the model, which is trained in place, and a fresh optimizer.
        demonstrations: What to imitate.
        imitation: How.

    Yields:
        What each step did, after it.

    Raises:
        InvalidArgument: There is no demonstration, or one is empty.
        UpdateError: Loss or gradient is not finite.
    """
    groups = [_as_group(demonstration) for demonstration in demonstrations]
    if not groups and imitation.num_steps:
        raise InvalidArgument(
            "demonstrations", "none", "at least one",
            "set the demonstrators of the warm start, or its number of steps to 0",
        )  # fmt: skip
    order: list[int] = []
    epoch = 0
    for step in range(imitation.num_steps):
        while len(order) < imitation.batch_size:
            generator = np.random.default_rng((imitation.seed, epoch))
            order += generator.permutation(len(groups)).tolist()
            epoch += 1
        size = imitation.batch_size
        chosen, order = [groups[index] for index in order[:size]], order[size:]
        rate = imitation.learning_rate * (1 - 0.9 * step / imitation.num_steps)
        loss, norm = learner.step(weighted_groups(chosen, "token_mean", 1), _likelihood, rate)
        yield ImitationStep(step, loss, norm)


def _likelihood(statistics: TokenStatistics, targets: Targets) -> Tensor:
    return -(statistics.logprobs * targets.weights).sum()


def _as_group(demonstration: Demonstration) -> TrainingGroup:
    if not demonstration.prompt_ids or not demonstration.completion_ids:
        raise InvalidArgument(
            "demonstrations", "one with an empty prompt or completion", "token ids in both",
            "end every demonstrated answer with the end token",
        )  # fmt: skip
    logprobs = (0.0,) * len(demonstration.completion_ids)
    completion = TrainingCompletion(demonstration.completion_ids, logprobs, 0.0)
    return TrainingGroup(role="", prompt_ids=demonstration.prompt_ids, completions=(completion,))
