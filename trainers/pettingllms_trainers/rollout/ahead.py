"""The rollouts of one train step after another, played when they are wanted or one step ahead."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.curriculum import Records, with_episodes
from pettingllms_trainers.rollout.sampler import Sample, Sampler
from pettingllms_trainers.stopping import StopRequest
from pettingllms_trainers.types import RolloutTree


class TrainingRollouts:
    """Gives the training loop its rollouts.

    With `rollout.ahead = 1` those of the next train step are played while the policies learn.
    Engines get new weights only when both are done: whatever the timing, all tokens of a train step
    are drawn from the weights before the update that was computed beside them. Where the model that
    learns also generates, and with several ranks, the rollouts are played before that update: the
    result is the same, and no time is saved.

    Args:
        sampler: Plays rollouts.
        config: The run's configuration.
        stop: Tells when to stop early.
        ranks: The processes of the run; None for this one alone.
    """

    def __init__(
        self, sampler: Sampler, config: Config, stop: StopRequest, ranks: Ranks | None = None
    ) -> None:
        self._sampler, self._config, self._stop = sampler, config, stop
        self._overlaps = config.plays_beside_updates and (ranks or Ranks()).size == 1
        self.pending: Sample | None = None
        """What was played ahead and is not learnt yet; a checkpoint must keep it."""

    @property
    def num_levels_used(self) -> int:
        """Level cursor: training levels that the run has used, also ahead."""
        return self._sampler.num_levels_used

    @property
    def memory(self) -> Mapping[str, Any]:
        """What the algorithm remembers of the train steps that have been learnt."""
        return self._sampler.memory

    @property
    def records(self) -> Records:
        """How the stages of curricula have been played in these train steps."""
        return self._sampler.records

    def remember(self, step: int, trees: Sequence[RolloutTree]) -> None:
        """Let algorithm and curricula learn from rollouts how to play the next ones."""
        config, sampler = self._config, self._sampler
        sampler.memory = config.algorithm.remember(trees, Moment(step, sampler.memory))
        sampler.records = {
            name: with_episodes(
                sampler.records[name],
                (tree for tree in trees if tree.env == name),
                env.curriculum_decay,
            )
            for name, env in zip(config.env_names, config.env, strict=True)
        }

    def restore(
        self,
        num_levels_used: int,
        pending: Sample | None,
        memory: Mapping[str, Any],
        records: Records,
    ) -> None:
        """Continue where a checkpoint was written."""
        self._sampler.num_levels_used, self.pending = num_levels_used, pending
        self._sampler.memory, self._sampler.records = memory, records

    def take(self, step: int) -> Sample | None:
        """Return the rollouts of a train step; None when a signal came, and nothing has changed.

        Args:
            step: From 0; the one after the last.
        """
        sample, self.pending = self.pending, None
        if sample is not None:
            return sample
        sample = self._sampler.rollouts(step)
        if self._stop.is_wanted():
            return None
        self._sampler.num_levels_used += sample.num_levels
        return sample

    @contextlib.contextmanager
    def playing_next(self, step: int) -> Iterator[None]:
        """Return the context of the update of a train step, in which the next one is played.

        The last train step of a run plays nothing. What is begun is played to its end, also when
        a signal asks to stop: without it the run could not be continued exactly.

        Args:
            step: That learns, from 0.
        """
        if not self._config.rollout.ahead or step + 1 >= self._config.num_steps:
            yield
        elif self._overlaps:
            with ThreadPoolExecutor(1, thread_name_prefix="pettingllms-rollouts") as thread:
                played = thread.submit(self._play_ahead, step + 1)
                yield
                self.pending = played.result()
        else:
            self.pending = self._play_ahead(step + 1)
            yield

    def _play_ahead(self, step: int) -> Sample:
        sample = self._sampler.rollouts(step, age=1)
        self._sampler.num_levels_used += sample.num_levels
        return sample
