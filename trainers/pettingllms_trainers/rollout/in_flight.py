"""The rollouts of one train step after another, in flight for as many steps as they may be old."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pettingllms.curriculum import with_episodes
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.ranks import Ranks, StopRequest
from pettingllms_trainers.rollout.candidates import Ask, AskV, ResultT, VersionedCompletions
from pettingllms_trainers.rollout.sampler import (
    InFlightRollouts,
    PendingStep,
    Records,
    Sample,
    Sampler,
)
from pettingllms_trainers.types import RolloutTree

_TURNS = 4
"""Turns of the event loop without a request after which all that can ask have asked; as for
`Batcher`."""
_STRAGGLERS = 0.1
"""Of a train step's levels at most such a share is given up."""


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
        self.sampler, self._config, self._stop = sampler, config, stop
        self._runner, self._gate, self._ranks = runner, WeightGate(), ranks or Ranks()
        self._most = config.rollout.max_staleness
        self.pending: list[PendingStep] = []
        """What has begun and is not learnt yet, by train step; a checkpoint must keep it."""
        self._tasks: dict[int, asyncio.Task[Sample]] = {}
        self._in_flight: dict[int, InFlightRollouts] = {}
        self._is_due = False
        """Whether the policies wait for the first of the pending steps."""

    def remembered(self, step: int, trees: Sequence[RolloutTree]) -> Mapping[str, Any]:
        """Let curricula learn from rollouts how to play the next ones; what the algorithm learns.

        Returns:
            The algorithm's memory, which is not that of the sampler yet.
        """
        config, sampler = self._config, self.sampler
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
        return config.algorithm.remember(trees, StepContext(step, sampler.memory))

    def restore(
        self,
        num_levels_used: int,
        pending: Sequence[PendingStep],
        memory: Mapping[str, Any],
        records: Records,
    ) -> None:
        """Continue where a checkpoint was written."""
        self.sampler.num_levels_used, self.pending = num_levels_used, list(pending)
        self.sampler.memory, self.sampler.records = memory, records

    def take(self, step: int) -> Sample | None:
        """The rollouts of a train step; None when a signal came, and nothing has changed.

        Args:
            step: From 0; the one after the last.
        """
        num_levels_used, is_new = self.sampler.num_levels_used, not self.pending
        if is_new:
            self.pending.append(self.sampler.pending(step, step))
            self._runner.run(self._play(step))
        # Steps are learnt in their order, whatever is complete first.
        pending = self.pending.pop(0)
        self._in_flight.pop(step, None)  # not there if it was complete when the run was resumed
        if is_new and self._stop.is_wanted():
            self.sampler.num_levels_used = num_levels_used
            return None
        assert pending.sample is not None, "it was played to its end"
        return pending.sample._replace(
            rollout_s=pending.rollout_s, generate_s=pending.generate_s, memory=pending.memory
        )

    @contextlib.contextmanager
    def playing_next(self, step: int) -> Iterator[None]:
        """The context of the update of a train step, in which the next ones are played.

        The last train step of a run plays nothing. Rollouts of the next step are played to their
        end, also when a signal asks to stop: without them the run could not be continued exactly.

        Args:
            step: That learns, from 0.
        """
        # All that may be as old as allowed is begun now, with the weights before the update.
        first = self.pending[-1].step + 1 if self.pending else step + 1
        last = min(step + self._most, self._config.num_steps - 1)
        self.pending += [self.sampler.pending(later, step) for later in range(first, last + 1)]
        if not self.pending:
            yield
        elif self._config.plays_beside_updates:
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
            if self.pending[0].sample is None:
                self._runner.run(self._play(step))
            yield

    async def _play(self, version: int, is_updated: threading.Event | None = None) -> None:
        """Play what is in flight until the first of it is complete, and an update is over."""
        first, started = self.pending[0], time.perf_counter()
        self.sampler.pool.take_generate_s()
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
            self._in_flight[first.step].comes_next.set()
            await asyncio.wait([self._tasks[first.step]])
        first.rollout_s += time.perf_counter() - started
        # Later steps go on as long as the update takes: engines would have nothing to do.
        if updated is not None:
            await updated
        await self._gate.close(must_drain=not self._config.swaps_within_answers)
        self._is_due = False
        first.generate_s = self.sampler.pool.take_generate_s()
        for pending in self.pending:
            if pending is not first:
                pending.rollout_s += time.perf_counter() - started
            if pending.step in self._tasks and self._tasks[pending.step].done():
                pending.sample = self._tasks.pop(pending.step).result()
                # Only what is still played has to be played again by a resumed run.
                pending.answers.clear()
                pending.values.clear()

    def _begin(self, *, is_on_policy: bool) -> None:
        """Let all pending steps play that do not yet; those of a checkpoint catch up."""
        for pending in self.pending:
            if pending.step in self._in_flight:
                continue
            in_flight = self._gate.rollouts(pending, self._leave_stragglers)
            self._in_flight[pending.step] = in_flight
            if pending.sample is None:
                play = self.sampler.rollouts(in_flight, may_stop=is_on_policy)
                task = self._tasks[pending.step] = asyncio.ensure_future(play)
                # Of several that fail, one is raised; asyncio would write about the others.
                task.add_done_callback(lambda t: t.cancelled() or t.exception())

    def _come_due(self) -> None:
        self._is_due = True
        self._leave_stragglers()

    def _leave_stragglers(self) -> None:
        """Give up the last levels of the first step, if it is due and nothing else is left."""
        if self._is_due:
            in_flight = [self._in_flight[pending.step] for pending in self.pending]
            if has_only_stragglers(in_flight, self._most):
                in_flight[0].cut_short()


class WeightGate:
    """Lets requests through to the engines, with one set of weights at a time.

    While it is closed no request begins, so that engines can take new weights: episodes wait before
    their next request, and go on with the new ones. What an engine is writing it may finish with
    them (`TokenCompletion.swaps`), if it can. Answers that a pending step has already are given at
    once. Used by one event loop at a time.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._waiting: list[tuple[tuple[int, str], asyncio.Future[int]]] = []
        self._asking: set[asyncio.Future[Any]] = set()
        self._num_asked = 0

    def rollouts(
        self, pending: PendingStep, callback: Callable[[], None] = lambda: None
    ) -> InFlightRollouts:
        """The rollouts of a pending step, whose episodes ask here; it notes the answers."""
        answering, valuing = partial(self._answer, pending), partial(self._value, pending)
        return InFlightRollouts(pending, answering, valuing, callback)

    async def _answer(
        self, pending: PendingStep, asked: Sequence[Any], ask: Ask
    ) -> VersionedCompletions:
        async def versioned(version: int) -> VersionedCompletions:
            return VersionedCompletions(await ask(), version)

        return await self._once((pending.step, asked), pending.answers, versioned)

    async def _value(self, pending: PendingStep, asked: Sequence[Any], ask: AskV) -> float:
        # Noted like answers: the next update changes V, and a resumed run must see this one.
        async def valued(_: int) -> float:
            return await ask()

        return await self._once((pending.step, asked), pending.values, valued)

    async def _once(
        self,
        asked: tuple[int, Sequence[Any]],
        known: dict[str, ResultT],
        ask: Callable[[int], Coroutine[Any, Any, ResultT]],
    ) -> ResultT:
        """What is known, or ask with the present weights."""
        # The order of requests depends on timing, so that they are known by what they ask.
        step, content = asked
        key = hashlib.blake2b(repr(content).encode(errors="surrogatepass"), digest_size=16)
        name = key.hexdigest()
        self._num_asked += 1
        if name not in known:
            version = await self._pass((step, name))
            request = asyncio.ensure_future(ask(version))
            self._asking.add(request)
            # Whoever asked may be cancelled with its level; then the engine need not go on either.
            try:
                known[name] = await request
            finally:
                self._asking.discard(request)
                request.cancel()
        return known[name]

    async def _pass(self, order: tuple[int, str]) -> int:
        # Open: the weights of now answer, so that the version is noted with the answer.
        if self._version is not None:
            return self._version
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((order, turn))
        return await turn

    def open(self, version: int) -> None:
        """Let requests through; those that wait, in an order that does not depend on timing.

        Args:
            version: Train steps that the engines' weights have taken.
        """
        self._version = version
        # In the order in which a resumed run would ask: by step and content.
        waiting, self._waiting = sorted(self._waiting, key=lambda one: one[0]), []
        for _, turn in waiting:
            if not turn.done():  # else its episode was cancelled
                turn.set_result(version)

    async def close(self, *, must_drain: bool) -> None:
        """Let no more requests through.

        Args:
            must_drain: Whether to wait until those that are computed are answered.
        """
        # Closed before waiting: a request that began now would be written by two sets of weights.
        self._version = None
        await self.settled()
        # Each answer may wake an episode that asks again, and then waits at the gate.
        while must_drain and self._asking:
            await asyncio.wait(self._asking)
            await self.settled()

    async def settled(self) -> None:
        """Wait until nobody is about to ask; what waits for threads may still do so later."""
        num_known = -1
        # Each turn may wake another coroutine: only a few turns without a request mean silence.
        while self._num_asked > num_known:
            num_known = self._num_asked
            for _ in range(_TURNS):
                await asyncio.sleep(0)


def has_only_stragglers(in_flight: Sequence[InFlightRollouts], most: int) -> bool:
    """Whether the levels that the first step still plays are to be given up.

    Hardly anything is left to play in all steps together: engines would have nothing else to do
    than these levels, which by the next train step would be older than allowed.

    Args:
        in_flight: What this process plays, the step that the policies wait for first.
        most: `rollout.max_staleness`.
    """
    first, version = in_flight[0], in_flight[0].pending.version
    num_missing = sum(one.num_levels - one.num_complete for one in in_flight)
    is_too_old_next = first.pending.step + 1 - version > most
    has_later = any(one.pending.version > version for one in in_flight)
    is_little = num_missing <= _STRAGGLERS * first.num_levels
    return is_too_old_next and has_later and is_little and first.num_complete > 0
