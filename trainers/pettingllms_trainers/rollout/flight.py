"""Rollouts of a train step on their way, and the gate at which they wait for new weights."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pettingllms.curriculum import LevelRecord
from pettingllms_trainers.types import RolloutTree, TokenCompletion

_ResultT = TypeVar("_ResultT")

_TURNS = 4
"""Turns of the event loop without a request after which all that can ask have asked; as for
`Batcher`."""


Records = Mapping[str, Sequence[LevelRecord]]
"""Name of an environment to how the stages of its curriculum have been played."""

_STRAGGLERS = 0.1
"""Of a train step's levels at most such a share is given up."""


class Answered(NamedTuple):
    """Completions of one prompt, and which weights wrote them."""

    completions: list[TokenCompletion]
    version: int | None = None
    """Train steps that these weights had taken; None outside training."""


Ask = Callable[[], Awaitable[list[TokenCompletion]]]
"""Lets a policy answer a prompt."""


Answering = Callable[[Sequence[Any], Ask], Awaitable[Answered]]
"""Called with plain values that say what is asked of whom, with the seed, and with the way to ask;
gives the answer."""


async def at_once(_: Sequence[Any], ask: Ask) -> Answered:
    """Ask now, whatever the weights: the `Answering` outside training."""
    return Answered(await ask())


AskV = Callable[[], Awaitable[float]]
"""Evaluates V of a prompt."""


Valuing = Callable[[Sequence[Any], AskV], Awaitable[float]]
"""As `Answering`, for V."""


async def value_at_once(_: Sequence[Any], ask: AskV) -> float:
    """Ask now: the `Valuing` outside training."""
    return await ask()


class Sample(NamedTuple):
    """The rollouts of a train step."""

    trees: list[RolloutTree]
    """One per episode, without those that were given up."""
    num_refills: int
    """Rounds of further levels among them."""
    num_stale: int = 0
    """Episodes that were given up: by the next train step they would have been too old."""
    rollout_s: float = 0.0
    """Wall time in which they were in flight and engines could generate."""
    generate_s: float = 0.0
    """Time in which engines generated in the last part of it, added up over policies."""


@dataclass(kw_only=True, slots=True)
class Flight:
    """Rollouts of one train step that have begun, as plain values: what a checkpoint keeps.

    Episodes are functions of the answers in them. Played again with the answers that were given,
    they are where they were, in the same environments.
    """

    step: int
    """From 0."""
    version: int
    """Train steps that the policies had taken when they began."""
    memory: Mapping[str, Any]
    """What the algorithm remembered when they began."""
    records: Records
    """How the stages of curricula had been played then."""
    first_levels: list[int] = field(default_factory=list[int])
    """Level cursor at the beginning of each round of levels so far."""
    answers: dict[str, Answered] = field(default_factory=dict[str, Answered])
    """What was answered, until all is played."""
    values: dict[str, float] = field(default_factory=dict[str, float])
    """What V said, likewise."""
    sample: Sample | None = None
    """What was played, when it is over."""
    rollout_s: float = 0.0
    """See `Sample`."""
    generate_s: float = 0.0
    """See `Sample`."""


def has_only_stragglers(voyages: Sequence[Voyage], most: int) -> bool:
    """Return whether the levels that the first flight still plays are to be given up.

    Hardly anything is left to play in all flights together: engines would have nothing else to do
    than these levels, which by the next train step would be older than allowed.

    Args:
        voyages: What this process plays, the flight that the policies wait for first.
        most: `rollout.max_staleness`.
    """
    first = voyages[0]
    flight, num_missing = first.flight, sum(one.num_begun - one.num_played for one in voyages)
    is_too_old_next = flight.step + 1 - flight.version > most
    has_later = any(one.flight.version > flight.version for one in voyages)
    is_little = num_missing <= _STRAGGLERS * first.num_begun
    return is_too_old_next and has_later and is_little and first.num_played > 0


class Gate:
    """Lets requests through to the engines, with one set of weights at a time.

    While it is closed no request begins, so that engines can take new weights: episodes wait before
    their next request, and go on with the new ones. What an engine is writing it may finish with
    them (`TokenCompletion.swaps`), if it can. Answers that a flight has already are
    given at once. Used by one event loop at a time.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._waiting: list[tuple[tuple[int, str], asyncio.Future[int]]] = []
        self._asking: set[asyncio.Future[Any]] = set()
        self._num_asked = 0

    async def answer(self, flight: Flight, asked: Sequence[Any], ask: Ask) -> Answered:
        """Return the answer to a request of a flight, which notes it; see `Answering`."""

        async def versioned(version: int) -> Answered:
            return Answered(await ask(), version)

        return await self._once((flight.step, asked), flight.answers, versioned)

    async def value(self, flight: Flight, asked: Sequence[Any], ask: AskV) -> float:
        """Return V for a flight, which notes it: the next update changes V; see `Valuing`."""

        async def valued(_: int) -> float:
            return await ask()

        return await self._once((flight.step, asked), flight.values, valued)

    async def _once(
        self,
        asked: tuple[int, Sequence[Any]],
        known: dict[str, _ResultT],
        ask: Callable[[int], Coroutine[Any, Any, _ResultT]],
    ) -> _ResultT:
        """Return what is known, or ask with the present weights."""
        step, content = asked
        key = hashlib.blake2b(repr(content).encode(errors="surrogatepass"), digest_size=16)
        name = key.hexdigest()
        self._num_asked += 1
        if name not in known:
            version = await self._pass((step, name))
            request = asyncio.ensure_future(ask(version))
            self._asking.add(request)
            try:
                known[name] = await request
            finally:
                self._asking.discard(request)
                request.cancel()
        return known[name]

    async def _pass(self, order: tuple[int, str]) -> int:
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
        waiting, self._waiting = sorted(self._waiting, key=lambda one: one[0]), []
        for _, turn in waiting:
            if not turn.done():  # else its episode was cancelled
                turn.set_result(version)

    async def close(self, *, must_drain: bool) -> None:
        """Let no more requests through.

        Args:
            must_drain: Whether to wait until those that are computed are answered.
        """
        self._version = None
        await self.settled()
        while must_drain and self._asking:
            await asyncio.wait(self._asking)
            await self.settled()

    async def settled(self) -> None:
        """Wait until nobody is about to ask; what waits for threads may still do so later."""
        num_known = -1
        while self._num_asked > num_known:
            num_known = self._num_asked
            for _ in range(_TURNS):
                await asyncio.sleep(0)


class Voyage:
    """A flight while it is played: what its episodes ask, and which levels are over.

    Args:
        flight: What is played.
        gate: Where its episodes ask.
        told: Called whenever a level is over.
    """

    def __init__(self, flight: Flight, gate: Gate, told: Callable[[], None] = lambda: None) -> None:
        self.flight, self._gate, self._told = flight, gate, told
        self.num_begun = self.num_played = 0
        """Levels of this process, and those of them that are over."""
        self.is_left = False
        """Whether the others were given up."""
        self.is_first = asyncio.Event()
        """Set when its train step comes next."""
        self._playing: set[asyncio.Task[list[RolloutTree]]] = set()

    async def answer(self, asked: Sequence[Any], ask: Ask) -> Answered:
        """See `Answering`."""
        return await self._gate.answer(self.flight, asked, ask)

    async def value(self, asked: Sequence[Any], ask: AskV) -> float:
        """See `Valuing`."""
        return await self._gate.value(self.flight, asked, ask)

    async def played(self, level: Coroutine[Any, Any, list[RolloutTree]]) -> list[RolloutTree]:
        """Return the trees of a level; none if it is given up."""
        self.num_begun += 1
        task = asyncio.ensure_future(level)
        self._playing.add(task)
        try:
            trees = await task
        except asyncio.CancelledError:
            if self.is_left:
                return []
            raise
        finally:
            self._playing.discard(task)
        self.num_played += 1
        self._told()
        return trees

    def leave(self) -> None:
        """Give up the levels that are not over."""
        self.is_left = True
        for task in self._playing:
            task.cancel()
