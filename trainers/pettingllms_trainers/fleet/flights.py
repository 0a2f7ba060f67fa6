"""Train steps whose rollouts stay in flight for several of them, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from pettingllms_trainers.rollout.in_flight import WeightGate, has_only_stragglers
from pettingllms_trainers.rollout.sampler import InFlightRollouts, PendingStep
from pettingllms_trainers.types import RolloutTree

Play = Callable[[InFlightRollouts], Coroutine[Any, Any, list[RolloutTree]]]
"""Plays the levels of a train step."""


class Flown(NamedTuple):
    """Train steps in the middle of a run."""

    begin_s: float
    end_s: float
    trees: list[list[RolloutTree]]
    """By train step, without episodes that were given up."""


class Flights:
    """Plays as `TrainingRollouts` does: the same gate, the same order, the same stragglers.

    Updates take no time here. So a train step takes as long as engines need for its part of what is
    in flight: longer updates leave them more time.

    Args:
        play: Plays the levels of a train step.
        most: `rollout.max_staleness`, at least 1.
        must_drain: Whether engines finish what they write before they get new weights.

    Source:
        A closed system whose customers think for no time: its throughput, and that of the policies,
        bound the one of both from above (Lazowska et al., Quantitative System Performance, 1984,
        section 5.2).
    """

    def __init__(self, play: Play, most: int, *, must_drain: bool) -> None:
        self._play, self._most, self._must_drain = play, most, must_drain
        self._gate = WeightGate()
        self._in_flight: list[InFlightRollouts] = []
        self._tasks: list[asyncio.Task[list[RolloutTree]]] = []

    async def fly(self, num_steps: int) -> Flown:
        """Take some train steps after the first ones, in which what is in flight grows."""
        loop, begin_s, trees = asyncio.get_running_loop(), 0.0, list[list[RolloutTree]]()
        for step in range(self._most + num_steps):
            if step == self._most:
                begin_s = loop.time()
            first = len(self._in_flight) + step
            for later in range(first, step + self._most):
                self._begin(later + 1, step)
            await self._gate.settled()
            self._gate.open(step)
            self._leave_stragglers()
            found = await self._tasks.pop(0)
            self._in_flight.pop(0)
            await self._gate.close(must_drain=self._must_drain)
            trees.append(found)
        end_s = loop.time()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return Flown(begin_s, end_s, trees[self._most :])

    def _begin(self, step: int, version: int) -> None:
        pending = PendingStep(step=step, version=version, memory={}, records={})
        in_flight = self._gate.rollouts(pending, self._leave_stragglers)
        self._in_flight.append(in_flight)
        self._tasks.append(asyncio.ensure_future(self._play(in_flight)))

    def _leave_stragglers(self) -> None:
        if has_only_stragglers(self._in_flight, self._most):
            self._in_flight[0].cut_short()
