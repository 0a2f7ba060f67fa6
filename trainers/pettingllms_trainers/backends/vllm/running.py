"""Requests inside a vLLM engine of this trainer: new ones join while others are computed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["EngineInput", "RunningRequests"]


class EngineInput(NamedTuple):
    """One request, as vLLM takes it."""

    prompt: dict[str, list[int]]
    """Token ids."""
    parameters: Any
    """``SamplingParams``."""
    adapter: Any
    """``LoRARequest``, or None."""


class RunningRequests:
    """Lets an engine step as long as it has requests, and gives out what is finished.

    Between two steps all coroutines that can run do so, and what they ask for joins the next step.
    An engine in this process steps in the calling thread: what is computed together then depends on
    nothing but the requests. Used by one event loop at a time.

    Args:
        llm: A ``vllm.LLM``.
        in_thread: Whether a step waits for other processes, and coroutines continue meanwhile.
    """

    def __init__(self, llm: Any, *, in_thread: bool) -> None:
        self._llm, self._in_thread = llm, in_thread
        self.lock = threading.Lock()
        """Held in a step, which may outlive the event loop's last turn in a train step."""
        self._new: list[tuple[EngineInput, asyncio.Future[Any]]] = []
        self._running: dict[str, asyncio.Future[Any]] = {}
        self._steps: asyncio.Task[None] | None = None

    async def outputs(self, inputs: Sequence[EngineInput]) -> list[Any]:
        """VLLM's output of each request, when all are finished.

        Raises:
            Exception: What vLLM raises; all requests that are running get it.
        """
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in inputs]
        self._new += zip(inputs, futures, strict=True)
        if self._steps is None:
            self._steps = loop.create_task(self._step_all())
        return list(await asyncio.gather(*futures))

    async def _step_all(self) -> None:
        try:
            while self._new or self._running:
                self._begin()
                self._drop_cancelled()
                # An engine elsewhere that has no requests would never answer.
                for output in await self._step() if self._running else ():
                    if output.finished:
                        _resolve(self._running.pop(output.request_id), output)
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001  whoever waits gets it
            for future in [*self._running.values(), *(future for _, future in self._new)]:
                if not future.done():
                    future.set_exception(error)
        finally:
            self._new, self._running, self._steps = [], {}, None

    def _begin(self) -> None:
        """Hand over what has come; never beside a step, which vLLM does not allow."""
        new, self._new = self._new, []
        for (prompt, parameters, adapter), future in new:
            if future.cancelled():
                continue
            (name,) = self._llm.enqueue(
                [prompt], [parameters], lora_request=[adapter], use_tqdm=False
            )
            # vLLM adds "-" and random characters to the number by which outputs are known.
            self._running[name.partition("-")[0]] = future

    def _drop_cancelled(self) -> None:
        """Abort what nobody waits for any more: it would hold slots and KV cache to its end."""
        gone = [name for name, future in self._running.items() if future.cancelled()]
        if gone:
            self._llm.llm_engine.abort_request(gone)
        for name in gone:
            del self._running[name]

    async def _step(self) -> list[Any]:
        return (
            await asyncio.to_thread(self._locked_step) if self._in_thread else self._locked_step()
        )

    def _locked_step(self) -> list[Any]:
        with self.lock:
            return self._llm.llm_engine.step()


def _resolve(future: asyncio.Future[Any], output: Any) -> None:
    if not future.done():  # else whoever asked was cancelled
        future.set_result(output)
