"""V of prompts, asked for by concurrent episodes and evaluated in one batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

__all__ = ["JoinedValues"]

_Prompt = tuple[int, ...]


class JoinedValues:
    """Joins prompts of concurrent coroutines into one evaluation; equal ones are evaluated once.

    Args:
        evaluate: Prompts to their V; see `Update.values`.
    """

    def __init__(self, evaluate: Callable[[Sequence[_Prompt]], list[float]]) -> None:
        self._evaluate = evaluate
        self._prompts: dict[_Prompt, None] = {}
        self._flight: asyncio.Task[dict[_Prompt, float]] | None = None
        self.seconds = 0.0
        """Wall time of evaluations since it was last set to 0."""

    async def of(self, prompt_ids: _Prompt) -> float:
        """Return V of one prompt; raises what the evaluation raises."""
        self._prompts[prompt_ids] = None
        if self._flight is None:
            # A new task runs after all coroutines that are ready now: they join this flight.
            self._flight = asyncio.get_running_loop().create_task(self._fly())
        return (await asyncio.shield(self._flight))[prompt_ids]

    async def _fly(self) -> dict[_Prompt, float]:
        prompts, self._prompts, self._flight = list(self._prompts), {}, None
        started = time.perf_counter()
        values = self._evaluate(prompts)
        self.seconds += time.perf_counter() - started
        return dict(zip(prompts, values, strict=True))
