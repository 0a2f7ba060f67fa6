"""Policies in worker processes of a Ray cluster, behind `Generate`, `Update` and `Sync`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pettingllms_trainers.backends.ray.cluster import explained
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.policies.requests import check_request
from pettingllms_trainers.types import (
    Demonstration,
    GenerateRequest,
    Imitation,
    ImitationStep,
    RequestLimits,
    TokenCompletion,
    TrainingGroup,
    UpdateStats,
    ValueExample,
    ValueFit,
)

__all__ = ["GENERATION", "RemotePolicy"]

GENERATION = "generation"
"""Group of calls, with a thread of its own in the worker, that run while policies learn."""

_FILES_TIMEOUT_S = 120.0
_FILES_PAUSE_S = 0.5


class RemotePolicy:
    """One policy; see `ray_worker.PolicyWorker`.

    Requests are split over its workers. All else is done by all workers together: each has a copy
    of the policy or its share of it.

    Args:
        ray: The connected module.
        name: Of the policy.
        workers: Actors that hold it.
        limits: Which requests its engine can answer.
        generates_beside_updates: Whether the workers have threads for `GENERATION`.
    """

    is_concurrent = False

    def __init__(
        self,
        ray: Any,
        name: str,
        workers: Sequence[Any],
        limits: RequestLimits,
        *,
        generates_beside_updates: bool = False,
    ) -> None:
        self._ray, self._name, self._workers, self._limits = ray, name, tuple(workers), limits
        self._group = GENERATION if generates_beside_updates else None
        self._who = f"a worker of the policy {name!r}"

    @property
    def limits(self) -> RequestLimits:
        return self._limits

    def check(self, request: GenerateRequest) -> None:
        check_request(request, self._limits)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """Other coroutines continue meanwhile.

        Raises:
            GenerationError: The engine of a worker failed.
            WorkerLost: A worker has ended.
        """
        count = min(len(self._workers), len(requests))
        calls = [
            worker.generate.options(concurrency_group=self._group).remote(
                self._name, requests[index::count]
            )
            for index, worker in enumerate(self._workers[:count])
        ]
        with explained(self._who):
            parts: list[list[list[TokenCompletion]]] = await asyncio.gather(*calls)
        return [parts[index % count][index // count] for index in range(len(requests))]

    def update(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        """See `Update.update`.

        Raises:
            WorkerLost: A worker has ended.
        """
        return self._all("update", self._ray.put(list(groups)))[0]

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        """Split over the workers."""
        count = min(len(self._workers), len(prompts))
        calls = [
            worker.values.remote(self._name, list(prompts[index::count]))
            for index, worker in enumerate(self._workers[:count])
        ]
        with explained(self._who):
            parts: list[list[float]] = self._ray.get(calls)
        return [parts[index % count][index // count] for index in range(len(prompts))]

    def fit_values(self, examples: Sequence[ValueExample]) -> ValueFit:
        return self._all("fit_values", self._ray.put(list(examples)))[0]

    def imitate(
        self, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """Begins at once.

        Raises:
            WorkerLost: A worker has ended.
        """
        data = self._ray.put(list(demonstrations))
        streams = [
            worker.imitate.options(num_returns="streaming").remote(self._name, data, imitation)
            for worker in self._workers
        ]
        return self._followed(streams)

    def _followed(self, streams: Sequence[Any]) -> Iterator[ImitationStep]:
        try:
            for calls in zip(*streams, strict=True):
                with explained(self._who):
                    step: ImitationStep = self._ray.get(list(calls))[0]
                yield step
        finally:
            for stream in streams:
                self._ray.cancel(stream)

    def save_state(self, directory: Path) -> None:
        """See `Update.save_state`.

        Raises:
            CheckpointError: What the workers wrote is not seen here.
        """
        written = self._all("save_state", str(directory.resolve()))
        wanted = {name for names in written for name in names}
        deadline = time.monotonic() + _FILES_TIMEOUT_S
        # Network file systems show what others have written after a while.
        while missing := wanted - {path.name for path in directory.iterdir()}:
            if time.monotonic() > deadline:
                raise CheckpointError(
                    f"{directory}: the workers of the policy {self._name!r} have written "
                    f"{', '.join(sorted(missing))}, which is not seen here after "
                    f"{_FILES_TIMEOUT_S:g} s. Use a file system that all machines share"
                )
            time.sleep(_FILES_PAUSE_S)

    def load_state(self, directory: Path) -> None:
        self._all("load_state", str(directory.resolve()))

    def save_pretrained(self, directory: Path, *, final: Path | None = None) -> None:
        self._all("save_pretrained", str(directory.resolve()), str((final or directory).resolve()))

    def release(self) -> None:
        self._all("release")

    def push(self) -> None:
        self._all("push")

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """What the workers return."""
        calls = [getattr(worker, method).remote(self._name, *arguments) for worker in self._workers]
        with explained(self._who):
            return self._ray.get(calls)
