"""Policies in worker processes of a Ray cluster: what asks for them here, and what answers there.

`RemotePolicy` is in the main process, `PolicyWorker` in each worker, which knows of no cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pettingllms.files import PARTIAL
from pettingllms_trainers.backends.ray.cluster import explained
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.policies.pool import ModelPolicy, check_request
from pettingllms_trainers.policies.protocols import CheckGrammar, Encode, EncodeAnswer, TokenTexts
from pettingllms_trainers.ranks import Ranks, joined_ranks
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

GENERATION = "generation"
"""Group of calls, with a thread of its own in the worker, that run while policies learn."""

_FILES_TIMEOUT_S = 120.0
_FILES_PAUSE_S = 0.5

_ItemT = TypeVar("_ItemT")


class RemotePolicy:
    """One policy in worker processes, as engine, updater and sync; see `PolicyWorker`.

    Requests are split over its workers. All else is done by all workers together: each has a copy
    of the policy or its share of it.

    Args:
        ray: The connected module.
        name: Name of the policy.
        workers: Actors of `PolicyWorker`, at least one.
        limits: What a request is checked against.
        generates_beside_updates: Whether `generate` has a thread of its own in the workers.
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
        self._ray, self._name, self._workers, self.limits = ray, name, tuple(workers), limits
        self._group = GENERATION if generates_beside_updates else None
        self._who = f"a worker of the policy {name!r}"

    def check(self, request: GenerateRequest) -> None:
        check_request(request, self.limits)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """Other coroutines continue meanwhile.

        Raises:
            GenerationError: The engine of a worker failed.
            WorkerLost: A worker has ended.
        """
        calls = [
            worker.generate.options(concurrency_group=self._group).remote(self._name, part)
            for worker, part in self._split(requests)
        ]
        with explained(self._who):
            return _merged(await asyncio.gather(*calls), len(requests))

    @property
    def base(self) -> object:
        return self._workers

    def update_together(
        self, updates: Sequence[tuple[RemotePolicy, Sequence[TrainingGroup]]]
    ) -> list[UpdateStats]:
        """By all workers together.

        Raises:
            WorkerLost: A worker has ended.
        """
        data = self._ray.put({policy._name: list(groups) for policy, groups in updates})
        with explained(self._who):
            found = self._ray.get([worker.update.remote(data) for worker in self._workers])[0]
        return [found[policy._name] for policy, _ in updates]

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        """Split over the workers."""
        calls = [
            worker.call.remote(self._name, "updater", "values", list(part))
            for worker, part in self._split(prompts)
        ]
        with explained(self._who):
            return _merged(self._ray.get(calls), len(prompts))

    def fit_values(self, examples: Sequence[ValueExample]) -> ValueFit:
        return self._all("updater", "fit_values", self._ray.put(list(examples)))[0]

    def imitate(
        self, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """Begins at once.

        Raises:
            WorkerLost: A worker has ended.
        """
        # Once into the store, however many workers read it.
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
            # Also when the caller stops early: workers would imitate to the end.
            for stream in streams:
                self._ray.cancel(stream)

    def save_state(self, directory: Path) -> None:
        """See `Update.save_state`.

        Raises:
            CheckpointError: What the workers wrote is not seen here.
        """
        calls = [w.save_state.remote(self._name, directory.resolve()) for w in self._workers]
        with explained(self._who):
            written: list[list[str]] = self._ray.get(calls)
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
        self._all("updater", "load_state", directory.resolve())

    def save_pretrained(self, directory: Path, *, final: Path | None = None) -> None:
        final = (final or directory).resolve()
        self._all("updater", "save_pretrained", directory.resolve(), final=final)

    def release(self) -> None:
        self._all("sync", "release")

    def push(self) -> None:
        self._all("sync", "push")

    def _split(self, items: Sequence[_ItemT]) -> list[tuple[Any, Sequence[_ItemT]]]:
        """Workers with their shares of some items; none has an empty one."""
        count = min(len(self._workers), len(items))
        return [(self._workers[index], items[index::count]) for index in range(count)]

    def _all(self, part: str, method: str, *given: Any, **named: Any) -> list[Any]:
        calls = [
            worker.call.remote(self._name, part, method, *given, **named)
            for worker in self._workers
        ]
        with explained(self._who):
            return self._ray.get(calls)


def _merged(parts: Sequence[Sequence[_ItemT]], total: int) -> list[_ItemT]:
    """The results of items that `_split` has divided, in their order."""
    return [parts[index % len(parts)][index // len(parts)] for index in range(total)]


class PolicyInfo(NamedTuple):
    """What the main process needs of a worker's policy: fields of its `ModelPolicy`, and two flags.

    Sent from worker to main process, so all of it can be pickled.
    """

    encode: Encode
    encode_answer: EncodeAnswer
    token_texts: TokenTexts | None
    check_grammar: CheckGrammar | None
    limits: RequestLimits
    is_trainable: bool
    """Whether it has an updater."""
    has_copy: bool
    """Whether its engine has a copy of the weights."""


class PolicyWorker:
    """Policies that share a base model, with engine and updater, in a process of their own.

    No method is a coroutine: Ray would then call several at once. With
    `rollout.max_staleness` `generate` has a thread of its own, and its engine a process, so that it
    runs while another call updates.
    """

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()

    def meeting_point(self) -> tuple[str, int]:
        """An address of this machine, and a port that is free there."""
        host: str = import_module("ray.util").get_node_ip_address()
        with socket.socket() as free:
            free.bind((host, 0))
            return host, free.getsockname()[1]

    def build(
        self, config: Config, names: Sequence[str], rank: int, size: int, meeting: tuple[str, int]
    ) -> dict[str, PolicyInfo]:
        """Load the models and start the engines; wait for the other workers of the policies.

        Raises:
            PettingLLMsError: A model cannot be loaded, or an engine not be started.
        """
        # Imported here: workers of environments need no torch.
        from pettingllms_trainers.backends.build import build_policies, build_pool

        # Only these policies: others are in other workers.
        own = config.model_copy(
            update={"policies": {name: config.policies[name] for name in names}}
        )
        ranks = self._closing.enter_context(_joined(rank, size, meeting))
        self._pool = build_pool(own, build_policies(own, ranks), ranks=ranks)
        self._policies = self._pool.policies
        # One loop for good: engines keep connections and tasks in it.
        self._runner = asyncio.Runner()
        return {
            name: PolicyInfo(
                policy.encode,
                policy.encode_answer,
                policy.token_texts,
                policy.check_grammar,
                policy.batcher.engine.limits,
                is_trainable=policy.updater is not None,
                has_copy=policy.sync is not None,
            )
            for name, policy in self._policies.items()
        }

    def reads(self, path: Path) -> bool:
        """Whether this machine sees a file."""
        return path.is_file()

    def generate(
        self, name: str, requests: Sequence[GenerateRequest]
    ) -> list[list[TokenCompletion]]:
        return self._runner.run(_generate(self._policies[name], requests))

    def update(self, data: Mapping[str, Sequence[TrainingGroup]]) -> dict[str, UpdateStats]:
        """Train the policies that have an entry."""
        return self._pool.update(data, data.__contains__)

    def call(self, name: str, part: str, method: str, *given: Any, **named: Any) -> Any:
        """The result of a method of a policy's `updater` or `sync`."""
        return getattr(getattr(self._policies[name], part), method)(*given, **named)

    def imitate(
        self, name: str, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """Ends early when the call is cancelled."""
        updater = self._policies[name].updater
        assert updater is not None, f"{name} is frozen"
        context = import_module("ray").get_runtime_context()
        for step in updater.imitate(demonstrations, imitation):
            yield step
            if context.is_canceled():
                return

    def save_state(self, name: str, directory: Path) -> list[str]:
        """Save the state of a policy; the files that are there then, of others as well."""
        self.call(name, "updater", "save_state", directory)
        # Not those that others are writing: they get another name.
        return [path.name for path in directory.iterdir() if not path.name.endswith(PARTIAL)]


def _joined(
    rank: int, size: int, meeting: tuple[str, int]
) -> contextlib.AbstractContextManager[Ranks]:
    """Connect with the other workers, in the way that launchers of processes agree on."""
    host, port = meeting
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": "0",  # every worker sees its own GPUs only
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
    }
    return joined_ranks(is_masked=True)


async def _generate(
    policy: ModelPolicy, requests: Sequence[GenerateRequest]
) -> list[list[TokenCompletion]]:
    return list(await asyncio.gather(*map(policy.sample, requests)))
