"""Which stages of a curriculum levels come from: those in which there is something to learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pettingllms_trainers.types import RolloutTree


class StageRecord(NamedTuple):
    """How the episodes of a stage have ended, those of earlier train steps with less weight."""

    num_success: float = 0.0
    """Weighted number of episodes that were solved."""
    num_episodes: float = 0.0
    """Weighted number of episodes, at least `num_success`."""

    @property
    def success(self) -> float:
        """Estimate of the share that is solved, in (0, 1): the mean under a uniform prior.

        A stage that was never played, or long ago, is at 1/2.
        """
        return (self.num_success + 1) / (self.num_episodes + 2)


Records = Mapping[str, Sequence[StageRecord]]
"""Name of an environment to the records of its stages."""


def stage_shares(records: Sequence[StageRecord], floor: float) -> list[float]:
    """Return the share of an environment's levels that every stage gets: above 0, adding up to 1.

    Args:
        records: Of its stages.
        floor: Part that all stages get alike, in (0, 1]; the rest goes by p (1 - p), where p is the
            stage's success.

    Source:
        Learnability p (1 - p) of Rutherford et al. (arXiv 2408.15099): the variance of success,
        which is what a group of answers can be compared by. Changed: of stages and not of single
        levels, whose p would need episodes of every level under the present policy.
    """
    learnable = [record.success * (1 - record.success) for record in records]
    total, equal = sum(learnable), floor / len(records)
    return [equal + (1 - floor) * value / total for value in learnable]


def with_episodes(
    records: Sequence[StageRecord], trees: Iterable[RolloutTree], decay: float
) -> list[StageRecord]:
    """Return the records of an environment's stages after a train step.

    Args:
        records: Before it.
        trees: The environment's episodes of the step, each of its stage; failed ones do not count.
        decay: Weight of everything before, in [0, 1].
    """
    ended = [(tree.stage, tree.outcome.success) for tree in trees if tree.outcome is not None]
    return [
        StageRecord(
            decay * record.num_success + sum(success for own, success in ended if own == stage),
            decay * record.num_episodes + sum(own == stage for own, _ in ended),
        )
        for stage, record in enumerate(records)
    ]
