"""Engines that take time and write nothing: servers with continuous batching, in simulated time."""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from pettingllms_trainers.fleet.speeds import EngineSpeed
from pettingllms_trainers.types import GenerateRequest, RequestLimits, TokenCompletion

Draw = Callable[[int, random.Random], int]
"""From the place of a prompt (`place_of`) and chance to the tokens of an answer."""

_LIMITS = RequestLimits(max_batch_tokens=1 << 62, context_length=None, vocab_size=1 << 31)


@functools.lru_cache(maxsize=4096)
def prompt_of(place: int, num_tokens: int) -> tuple[int, ...]:
    """Return a prompt of a length, at least 1, that names the place it is asked at."""
    return (place, *[0] * (num_tokens - 1))


@functools.lru_cache(maxsize=4096)
def _answer(num_tokens: int) -> TokenCompletion:
    return TokenCompletion(
        token_ids=(0,) * num_tokens, logprobs=(0.0,) * num_tokens, text="", finish_reason="stop"
    )


class Server:
    """One GPU, or several as one, with an engine for each of some models.

    All sequences advance by one token in an iteration. Models on one server take turns, so that an
    iteration is as long as those of all models that have something to write.

    Args:
        speeds: Model to what its engine takes here.
    """

    def __init__(self, speeds: Mapping[str, EngineSpeed]) -> None:
        self._speeds = speeds
        self._loop = asyncio.get_running_loop()
        self._running = dict.fromkeys(speeds, 0)
        self._cached = dict.fromkeys(speeds, 0.0)
        self._waiting: deque[tuple[str, int, int, asyncio.Future[None]]] = deque()
        self._ends: list[tuple[float, int, str, int, asyncio.Future[None]]] = []
        """Heap of what is written: iteration at which it ends, number, model, tokens, who waits."""
        self._numbers = itertools.count()
        self._iterations = 0.0
        self._since_s = self._loop.time()
        """Until when `_iterations` is right; in the future while prompts are read."""
        self._timer: asyncio.TimerHandle | None = None
        self.num_asked = dict.fromkeys(speeds, 0)
        """Sequences of each model that are written or wait."""
        self.client_s = 0.0
        """What the process that plays has computed to ask."""
        self.changes: list[tuple[float, str, int]] = []
        """When sequences of which model began, 1, or ended, -1."""
        self.busy_s = dict.fromkeys(speeds, 0.0)
        """Time in which each model had something to write."""

    async def write(
        self, model: str, num_prompt_tokens: int, lengths: Sequence[int], *, is_read: bool = False
    ) -> None:
        """Read a prompt, unless it is read, and write completions of these lengths after it."""
        self._advance()
        speed = self._speeds[model]
        reading_s = speed.request_s + num_prompt_tokens * speed.prompt_s * (not is_read)
        self._since_s += reading_s
        self.busy_s[model] += reading_s
        ends = [self._loop.create_future() for _ in lengths]
        self.num_asked[model] += len(lengths)
        self.client_s += speed.client_s
        for length, end in zip(lengths, ends, strict=True):
            self._waiting.append((model, num_prompt_tokens, length, end))
        self._admit()
        await asyncio.gather(*ends)

    def _admit(self) -> None:
        """Begin what waits as far as the cache has room, and set the timer."""
        while self._waiting:
            model, read, length, end = self._waiting[0]
            room = self._speeds[model].max_tokens - self._cached[model]
            if self._running[model] and room < read + length:
                break
            self._waiting.popleft()
            self._running[model] += 1
            self._cached[model] += read
            self.changes.append((self._loop.time(), model, 1))
            entry = (self._iterations + length, next(self._numbers), model, read + length, end)
            heapq.heappush(self._ends, entry)
        if self._timer is not None:
            self._timer.cancel()
        if self._ends:
            left = self._seconds(self._ends[0][0] - self._iterations)
            self._timer = self._loop.call_at(self._since_s + left, self._finish)

    def _finish(self) -> None:
        due = self._ends[0][0]
        self._advance()
        self._iterations = max(self._iterations, due)  # rounding must not leave it behind
        self._complete()
        self._admit()

    def _complete(self) -> None:
        """Let go what is written."""
        while self._ends and self._ends[0][0] <= self._iterations + 1e-6:
            _, _, model, num_tokens, end = heapq.heappop(self._ends)
            self._running[model] -= 1
            self._cached[model] -= num_tokens
            self.num_asked[model] -= 1
            self.changes.append((self._since_s, model, -1))
            if not end.done():
                end.set_result(None)

    def _rates(self) -> tuple[float, float]:
        """Return the seconds of the next iteration, and by how much each later one is longer."""
        seconds = growth = 0.0
        for model, num in self._running.items():
            if num:
                speed = self._speeds[model]
                seconds += speed.iteration(num, self._cached[model])
                growth += speed.cache_s * num
        return seconds, growth

    def _seconds(self, num: float) -> float:
        seconds, growth = self._rates()
        return num * seconds + growth * num * (num - 1) / 2

    def _advance(self) -> None:
        """Bring the count of iterations to now, past ends that nobody had time to look at."""
        now = self._loop.time()
        while self._ends:
            end_s = self._since_s + self._seconds(self._ends[0][0] - self._iterations)
            if end_s >= now:
                break
            self._move(end_s)
            self._iterations = max(self._iterations, self._ends[0][0])  # as in `_finish`
            self._complete()
        self._move(now)

    def _move(self, moment: float) -> None:
        """Bring the count of iterations to a moment; before it nothing ends."""
        passed = moment - self._since_s
        if passed <= 0:
            return
        self._since_s = moment
        seconds, growth = self._rates()
        if not seconds:
            return
        num = passed / seconds
        if growth * num > 1e-3 * seconds:  # the positive root of what `_seconds` computes
            linear = seconds - growth / 2
            num = (math.sqrt(linear * linear + 2 * growth * passed) - linear) / growth
        self._iterations += num
        for model, running in self._running.items():
            self._cached[model] += num * running
            self.busy_s[model] += passed * (running > 0)


class SimulatedEngine:
    """An engine (`Generate`) that takes the time of its servers.

    Args:
        model: Its model on the servers.
        servers: A request goes to the one with the fewest sequences.
        speed: What a call takes besides.
        draw: How long answers are.
        is_concurrent: See `Generate`.
    """

    limits = _LIMITS

    def __init__(
        self,
        model: str,
        servers: Sequence[Server],
        speed: EngineSpeed,
        draw: Draw,
        *,
        is_concurrent: bool,
    ) -> None:
        self.is_concurrent = is_concurrent
        self._model, self._servers, self._speed, self._draw = model, servers, speed, draw

    def check(self, request: GenerateRequest) -> None:
        """Accept all."""

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """See `Generate.generate`."""
        if self._speed.call_s:
            await asyncio.sleep(self._speed.call_s)
        seen = set[tuple[int, ...]]()
        tasks: list[Coroutine[Any, Any, list[TokenCompletion]]] = []
        for request in requests:  # equal prompts are read once
            tasks.append(self._written(request, is_read=request.prompt_ids in seen))
            seen.add(request.prompt_ids)
        return await asyncio.gather(*tasks)

    async def _written(self, request: GenerateRequest, *, is_read: bool) -> list[TokenCompletion]:
        place, rng = request.prompt_ids[0], random.Random(request.seed)
        longest = request.sampling.max_completion_tokens
        lengths = [min(self._draw(place, rng), longest) for _ in range(request.num_candidates)]
        server = min(self._servers, key=lambda one: sum(one.num_asked.values()))
        await server.write(self._model, len(request.prompt_ids), lengths, is_read=is_read)
        return [_answer(length) for length in lengths]
