"""Requests of concurrent episodes, joined into one engine call."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from pettingllms_trainers.policies.protocols import Generate
from pettingllms_trainers.types import GenerateRequest, TokenCompletion

__all__ = ["Batcher"]

_TURNS = 4
"""Turns of the event loop without a request after which nobody is on the way to one. For episodes
in lockstep one is enough; a turn takes microseconds."""


class Batcher:
    """Joins requests of concurrent coroutines into one engine call.

    The call starts once every coroutine that can run has asked, so batches are as big as they can
    be and depend on nothing but the order in which the coroutines were started. Requests that come
    while the engine computes share the next call. An engine that takes requests while it computes
    can get each in a call of its own: nobody then waits for the longest completion of others.

    Args:
        engine: Answers.
        overlaps: Whether coroutines run while the engine computes. What shares a call then
            depends on timing.
        is_continuous: Whether requests are not joined; needs an engine that is concurrent.
    """

    def __init__(
        self, engine: Generate, *, overlaps: bool = False, is_continuous: bool = False
    ) -> None:
        self.engine = engine
        """Answers."""
        self._overlaps, self._is_continuous = overlaps, is_continuous
        self._turn = asyncio.Lock()
        self._requests: list[GenerateRequest] = []
        self._flight: asyncio.Task[list[list[TokenCompletion]]] | None = None
        self._num_flights = 0
        self._busy_since_s = 0.0
        self.generate_s = 0.0
        """Wall time in which the engine worked since it was last set to 0."""
        self.num_completions = 0
        """Completions that the engine has written."""

    async def sample(self, request: GenerateRequest) -> list[TokenCompletion]:
        """Return the completions of one request; raises what the engine raises.

        Raises:
            InvalidArgument: The engine cannot answer it. Requests that would have shared its call
                are not affected.
        """
        self.engine.check(request)
        if self._is_continuous:
            (completions,) = await self._answered([request])
            return completions
        index = len(self._requests)
        self._requests.append(request)
        if self._flight is None:
            self._flight = asyncio.get_running_loop().create_task(self._fly())
        return (await asyncio.shield(self._flight))[index]

    async def _fly(self) -> list[list[TokenCompletion]]:
        async with contextlib.nullcontext() if self.engine.is_concurrent else self._turn:
            if not self.engine.is_concurrent:
                await self._all_have_asked()
            requests, self._requests, self._flight = self._requests, [], None
            return await self._answered(requests)

    async def _all_have_asked(self) -> None:
        """Wait until no coroutine that can run is about to ask.

        Episodes that wait for each other come to their next request after different numbers of
        turns of the event loop. Whoever misses a flight once would fly apart for the whole episode.
        """
        num_known = 0
        while len(self._requests) > num_known:
            num_known = len(self._requests)
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    async def _answered(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        completions = await self._timed(requests)
        if len(completions) != len(requests):
            raise RuntimeError(
                f"the engine answered {len(requests)} requests with {len(completions)} results"
            )
        self.num_completions += sum(map(len, completions))
        return completions

    async def _timed(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        if not self._num_flights:
            self._busy_since_s = time.perf_counter()
        self._num_flights += 1
        try:
            return await self._generate(requests)
        finally:
            self._num_flights -= 1
            if not self._num_flights:
                self.generate_s += time.perf_counter() - self._busy_since_s

    async def _generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        if self.engine.is_concurrent or not self._overlaps:
            return await self.engine.generate(requests)
        return await asyncio.to_thread(lambda: asyncio.run(self.engine.generate(requests)))
