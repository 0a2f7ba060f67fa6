"""The seams of the trainer, `Generate`, `Update` and `Sync`, and who plays which role."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from pettingllms_trainers.policies.fixed import Player
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import (
    Completion,
    Demonstration,
    GenerateRequest,
    Imitation,
    ImitationStep,
    TrainingGroup,
    UpdateStats,
)

if TYPE_CHECKING:  # the value is plain, its module needs torch
    from pettingllms_trainers.backends.hf.decoding import Limits

__all__ = [
    "Batcher",
    "Encode",
    "EncodeAnswer",
    "Generate",
    "Policy",
    "PolicyPool",
    "Sync",
    "Update",
]

_PartT = TypeVar("_PartT")
_ResultT = TypeVar("_ResultT")

Encode = Callable[[Sequence[Mapping[str, str]]], tuple[int, ...]]
"""Chat messages to prompt token ids, the generation prompt included."""


EncodeAnswer = Callable[[str], tuple[int, ...]]
"""The text of an answer to completion token ids, the end token included."""


class Generate(Protocol):
    """An engine that samples completions from a policy's present weights."""

    @property
    def is_concurrent(self) -> bool:
        """Whether calls of `generate` may overlap, because it waits for somebody else's work.

        If not, it computes in the calling thread and is called again when it is done.
        """
        ...

    @property
    def limits(self) -> Limits:
        """What `check` compares a request with; a plain value."""
        ...

    def check(self, request: GenerateRequest) -> None:
        """Make sure, at little cost, that the engine can answer a request.

        Raises:
            InvalidArgument: It cannot, whatever the weights: the prompt is too long, for example.
        """
        ...

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[Completion]]:
        """Return the completions of each request, in order.

        A request's result depends on the request and the weights only, up to float rounding. A
        completion that could not be made is left out; an engine that cannot go on raises.
        """
        ...


class Update(Protocol):
    """The owner of a policy's weights."""

    def update(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        """Train on the groups of one step; sampling afterwards uses the new weights."""
        ...

    def imitate(
        self, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """Fit the policy to demonstrations, step by step as the result is iterated.

        A policy of another process does not wait for the iteration.
        """
        ...

    def save_state(self, directory: Path) -> None:
        """Write all that an exact resume needs as files into a directory, which exists."""
        ...

    def load_state(self, directory: Path) -> None:
        """Go on exactly where `save_state` was called.

        Raises:
            CheckpointError: The files are damaged or of another model; nothing was changed.
        """
        ...

    def save_pretrained(self, directory: Path, *, final: Path | None = None) -> None:
        """Write weights and tokenizer as an ordinary Hugging Face directory.

        Args:
            directory: Where to write.
            final: Where the directory will be moved to; None when it stays.
        """
        ...


class Sync(Protocol):
    """The way of an updater's weights to an engine that has a copy of them."""

    def release(self) -> None:
        """Free what an update may need. Nothing is generated before the next `push`."""
        ...

    def push(self) -> None:
        """Give the engine the present weights: sampling afterwards uses them, and only them.

        Raises:
            GenerationError: The engine cannot take them.
        """
        ...


class Batcher:
    """Joins requests of concurrent coroutines into one engine call.

    The call starts once every coroutine that can run has asked, so batches are as big as they can
    be and depend on nothing but the order in which the coroutines were started. Requests that come
    while the engine computes share the next call.

    Args:
        engine: Answers.
        overlaps: Whether coroutines go on while the engine computes. What shares a call then
            depends on timing.
    """

    def __init__(self, engine: Generate, *, overlaps: bool = False) -> None:
        self.engine = engine
        """Answers."""
        self._overlaps = overlaps
        self._turn = asyncio.Lock()
        self._requests: list[GenerateRequest] = []
        self._flight: asyncio.Task[list[list[Completion]]] | None = None
        self._num_flights = 0
        self._busy_since_s = 0.0
        self.generate_s = 0.0
        """Wall time in which the engine worked since it was last set to 0."""

    async def sample(self, request: GenerateRequest) -> list[Completion]:
        """Return the completions of one request; raises what the engine raises.

        Raises:
            InvalidArgument: The engine cannot answer it. Requests that would have shared its call
                are not affected.
        """
        self.engine.check(request)
        index = len(self._requests)
        self._requests.append(request)
        if self._flight is None:
            # A new task runs after all coroutines that are ready now: they join this flight.
            self._flight = asyncio.get_running_loop().create_task(self._fly())
        return (await asyncio.shield(self._flight))[index]

    async def _fly(self) -> list[list[Completion]]:
        async with contextlib.nullcontext() if self.engine.is_concurrent else self._turn:
            requests, self._requests, self._flight = self._requests, [], None
            completions = await self._timed(requests)
        if len(completions) != len(requests):
            raise RuntimeError(
                f"the engine answered {len(requests)} requests with {len(completions)} results"
            )
        return completions

    async def _timed(self, requests: Sequence[GenerateRequest]) -> list[list[Completion]]:
        if not self._num_flights:
            self._busy_since_s = time.perf_counter()
        self._num_flights += 1
        try:
            return await self._generate(requests)
        finally:
            self._num_flights -= 1
            if not self._num_flights:
                self.generate_s += time.perf_counter() - self._busy_since_s

    async def _generate(self, requests: Sequence[GenerateRequest]) -> list[list[Completion]]:
        if self.engine.is_concurrent or not self._overlaps:
            return await self.engine.generate(requests)
        return await asyncio.to_thread(lambda: asyncio.run(self.engine.generate(requests)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """One set of weights: how it reads, writes and learns."""

    name: str
    """Name in the run file."""
    encode: Encode
    """Its tokenizer's chat template."""
    encode_answer: EncodeAnswer
    """The same tokenizer, for answers that are demonstrated."""
    batcher: Batcher
    """Its engine, behind the joining of requests."""
    updater: Update | None
    """None for a frozen policy."""
    sync: Sync | None = None
    """None when the engine generates with the updater's own weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyPool:
    """Which policy plays which role; roles that name one policy share it."""

    policies: Mapping[str, Policy]
    """Policies with weights by name."""
    roles: Mapping[str, str]
    """Role to the name of a policy or player."""
    players: Mapping[str, Player] = field(default_factory=dict[str, Player])
    """Players by name: they have no weights."""
    ranks: Ranks = field(default_factory=Ranks)
    """The processes that play and train with these policies together."""
    computes_elsewhere: bool = False
    """Whether each policy has processes of its own, so that all can compute at the same time."""

    def for_role(self, role: str) -> Policy | Player:
        """Return the policy or player of a role."""
        name = self.roles[role]
        return self.players[name] if name in self.players else self.policies[name]

    def updaters(self) -> dict[str, Update]:
        """Return the trainable policies by name."""
        return {
            name: policy.updater
            for name, policy in self.policies.items()
            if policy.updater is not None
        }

    def update(self, data: Mapping[str, Sequence[TrainingGroup]]) -> dict[str, UpdateStats]:
        """Train every trainable policy on its groups of one step; see `Update.update`."""
        return self._each(lambda name, updater: updater.update(data.get(name, [])), self.updaters())

    def release_engines(self) -> None:
        """Let engines free what an update may need."""
        self._each(lambda _, sync: sync.release(), self._syncs())

    def push_weights(self) -> None:
        """Give all engines that have a copy of the weights the present ones."""
        self._each(lambda _, sync: sync.push(), self._syncs())

    def _syncs(self) -> dict[str, Sync]:
        """Return each of them once: an engine may serve several policies."""
        names = {p.sync: name for name, p in self.policies.items() if p.sync is not None}
        return {name: sync for sync, name in names.items()}

    def _each(
        self, call: Callable[[str, _PartT], _ResultT], parts: Mapping[str, _PartT]
    ) -> dict[str, _ResultT]:
        """Return what a call gives for each policy; all at once where that costs nobody time."""
        if not (self.computes_elsewhere and parts):
            return {name: call(name, part) for name, part in parts.items()}
        with ThreadPoolExecutor(len(parts)) as threads:
            return dict(zip(parts, threads.map(call, parts, parts.values()), strict=True))

    def take_generate_s(self) -> float:
        """Return the wall time spent in the engines since the last call."""
        seconds = sum(policy.batcher.generate_s for policy in self.policies.values())
        for policy in self.policies.values():
            policy.batcher.generate_s = 0.0
        return seconds

    def swapped(self) -> PolicyPool | None:
        """Return a pool in which every role is played by the next role's policy.

        Players keep their roles: swapping shows how far policies with weights have specialised.
        None when one of these plays all other roles: then there is nothing to swap.
        """
        roles = {role: name for role, name in self.roles.items() if name in self.policies}
        names = list(roles.values())
        if len(set(names)) < 2:
            return None
        moved = dict(zip(roles, [*names[1:], names[0]], strict=True))
        return replace(self, roles={**self.roles, **moved})
