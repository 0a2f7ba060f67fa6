"""The rollouts of one train step after another, in flight for as many steps as they may be old."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pettingllms.curriculum import with_episodes
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import Moment
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.flight import (
    Flight,
    Gate,
    Records,
    Sample,
    Voyage,
    has_only_stragglers,
)
from pettingllms_trainers.rollout.sampler import Sampler
from pettingllms_trainers.stopping import StopRequest
from pettingllms_trainers.types import RolloutTree


class TrainingRollouts:
    """Gives the training loop its rollouts.

    With `rollout.max_staleness = k` those of the next k train steps are in flight while the
    policies learn. They are played until those of the very next step are complete, and as long as
    the update takes. Then engines get new weights, with which the others go on. So the rollouts of
    train step n begin with the weights of step n - k and end with those of step n - 1 at the
    latest: no token is older than k. With k = 1 all tokens are drawn from the weights before the
    update, whatever the timing.

    Above 1 a train step does not wait for stragglers. When engines have hardly anything else to do
    in all that is in flight, the last levels of a step are given up, at most a tenth of them: by
    the next step they would be older than k.

    Where the model that learns also generates, the rollouts are played before the update, and no
    time is saved. Several ranks play their own levels, and exchange them when their step comes.

    Args:
        sampler: Plays rollouts.
        config: The run's configuration.
        stop: Tells when to stop early.
        runner: Runs the rollouts; one event loop, in which they stay between two train steps.
        ranks: The processes of the run; None for this one alone.

    Source:
        Bounded staleness and weights that change within an episode are those of AReaL (arXiv
        2505.24298, section 4), which learns from what is complete first and drops what is too old.
        Changed: levels belong to a train step before they are played, so that those that are solved
        sooner are not learnt sooner; only stragglers are dropped. Weights that change within an
        answer are those of PipelineRL (arXiv 2509.19128), whose new weights keep the old KV cache;
        here they read the answer again.
    """

    def __init__(
        self,
        sampler: Sampler,
        config: Config,
        stop: StopRequest,
        runner: asyncio.Runner,
        ranks: Ranks | None = None,
    ) -> None:
        self._sampler, self._config, self._stop = sampler, config, stop
        self._runner, self._gate, self._ranks = runner, Gate(), ranks or Ranks()
        self._most = config.rollout.max_staleness
        self._overlaps = config.plays_beside_updates
        self.flights: list[Flight] = []
        """What has begun and is not learnt yet, by train step; a checkpoint must keep it."""
        self._tasks: dict[int, asyncio.Task[Sample]] = {}
        self._voyages: dict[int, Voyage] = {}
        self._is_due = False
        """Whether the policies wait for the first of the flights."""

    @property
    def num_levels_used(self) -> int:
        """Level cursor: training levels that the run has used, also in flight."""
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
                (
                    (tree.stage, tree.outcome.success)
                    for tree in trees
                    if tree.env == name and tree.outcome is not None
                ),
                env.curriculum_decay,
            )
            for name, env in zip(config.env_names, config.env, strict=True)
        }

    def restore(
        self,
        num_levels_used: int,
        flights: Sequence[Flight],
        memory: Mapping[str, Any],
        records: Records,
    ) -> None:
        """Continue where a checkpoint was written."""
        self._sampler.num_levels_used, self.flights = num_levels_used, list(flights)
        self._sampler.memory, self._sampler.records = memory, records

    def take(self, step: int) -> Sample | None:
        """Return the rollouts of a train step; None when a signal came, and nothing has changed.

        Args:
            step: From 0; the one after the last.
        """
        num_levels_used, is_new = self.num_levels_used, not self.flights
        if is_new:
            self.flights.append(self._sampler.begun(step, step))
            self._runner.run(self._play(step))
        flight = self.flights.pop(0)
        self._voyages.pop(step, None)  # not there if it was complete when the run was resumed
        if is_new and self._stop.is_wanted():
            self._sampler.num_levels_used = num_levels_used
            return None
        assert flight.sample is not None, "it was played to its end"
        return flight.sample._replace(rollout_s=flight.rollout_s, generate_s=flight.generate_s)

    @contextlib.contextmanager
    def playing_next(self, step: int) -> Iterator[None]:
        """Return the context of the update of a train step, in which the next ones are played.

        The last train step of a run plays nothing. Rollouts of the next step are played to their
        end, also when a signal asks to stop: without them the run could not be continued exactly.

        Args:
            step: That learns, from 0.
        """
        first = self.flights[-1].step + 1 if self.flights else step + 1
        last = min(step + self._most, self._config.num_steps - 1)
        self.flights += [self._sampler.begun(later, step) for later in range(first, last + 1)]
        if not self.flights:
            yield
        elif self._overlaps:
            is_updated = threading.Event()
            with ThreadPoolExecutor(1, thread_name_prefix="pettingllms-rollouts") as thread:
                played = thread.submit(self._runner.run, self._play(step, is_updated))
                try:
                    yield
                finally:
                    is_updated.set()
                played.result()
            self._ranks.barrier()  # engines that they share get new weights now
        else:
            if self.flights[0].sample is None:
                self._runner.run(self._play(step))
            yield

    async def _play(self, version: int, is_updated: threading.Event | None = None) -> None:
        """Play what is in flight until the first of it is complete, and an update is over."""
        first, started = self.flights[0], time.perf_counter()
        self._sampler.take_generate_s()
        self._begin(is_on_policy=version == first.step)
        if version != first.step:  # else nothing waits, and nothing was played before
            await self._gate.settled()
        updated = None
        if is_updated is None:
            self._come_due()
        else:
            updated = asyncio.ensure_future(asyncio.to_thread(is_updated.wait))
            updated.add_done_callback(lambda _: self._come_due())
        self._gate.open(version)
        if first.sample is None:
            self._voyages[first.step].is_first.set()
            await asyncio.wait([self._tasks[first.step]])
        first.rollout_s += time.perf_counter() - started
        if updated is not None:
            await updated
        await self._gate.close(must_drain=not self._config.swaps_within_answers)
        self._is_due = False
        first.generate_s = self._sampler.take_generate_s()
        for flight in self.flights:
            if flight is not first:
                flight.rollout_s += time.perf_counter() - started
            self._end(flight)

    def _begin(self, *, is_on_policy: bool) -> None:
        """Let all flights play that do not yet; those of a checkpoint catch up."""
        for flight in self.flights:
            if flight.step in self._voyages:
                continue
            voyage = Voyage(flight, self._gate, self._leave_stragglers)
            self._voyages[flight.step] = voyage
            if flight.sample is None:
                play = self._sampler.rollouts(voyage, may_stop=is_on_policy)
                self._tasks[flight.step] = asyncio.ensure_future(play)
                # Of several that fail, one is raised; asyncio would write about the others.
                self._tasks[flight.step].add_done_callback(lambda t: t.cancelled() or t.exception())

    def _end(self, flight: Flight) -> None:
        """Keep what a flight has given, if it is over; its answers are part of that.

        Raises:
            RolloutError: More rollouts or candidates failed than allowed.
        """
        if flight.step in self._tasks and self._tasks[flight.step].done():
            flight.sample = self._tasks.pop(flight.step).result()
            flight.answers.clear()
            flight.values.clear()

    def _come_due(self) -> None:
        self._is_due = True
        self._leave_stragglers()

    def _leave_stragglers(self) -> None:
        """Give up the last levels of the first flight, if it is due and nothing else is left."""
        if self._is_due:
            voyages = [self._voyages[flight.step] for flight in self.flights]
            if has_only_stragglers(voyages, self._most):
                voyages[0].leave()
