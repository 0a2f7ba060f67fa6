"""What runs in the worker processes of a Ray cluster. Nothing here knows of the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pettingllms
from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.pool import ModelPolicy
from pettingllms_trainers.policies.protocols import (
    CheckGrammar,
    Encode,
    EncodeAnswer,
    Sync,
    TokenTexts,
    Update,
)
from pettingllms_trainers.ranks import Ranks, joined_ranks
from pettingllms_trainers.rollout.episode import Branch, EpisodeState, LocalEpisodes, LostBranch
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

__all__ = ["EnvWorker", "PolicyInfo", "PolicyWorker"]


class PolicyInfo(NamedTuple):
    """What the main process must know of a policy to ask for it."""

    encode: Encode
    """See `ModelPolicy.encode`; can be pickled."""
    encode_answer: EncodeAnswer
    """See `ModelPolicy.encode_answer`; can be pickled."""
    token_texts: TokenTexts | None
    """See `ModelPolicy.token_texts`; can be pickled."""
    check_grammar: CheckGrammar | None
    """See `ModelPolicy.check_grammar`; can be pickled."""
    limits: RequestLimits
    """See `Generate.limits`."""
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

        Args:
            config: The run's configuration.
            names: The policies.
            rank: Position among their workers.
            size: Number of their workers.
            meeting: See `meeting_point`; of the first of them.

        Raises:
            PettingLLMsError: A model cannot be loaded, or an engine not be started.
        """
        # Imported here: workers of environments need no torch.
        from pettingllms_trainers.backends.build import (
            build_policies,
            build_pool,
            prepare_libraries,
        )

        own = config.model_copy(
            update={"policies": {name: config.policies[name] for name in names}}
        )
        prepare_libraries(own)
        ranks = self._closing.enter_context(_joined(rank, size, meeting))
        self._policies = build_pool(own, build_policies(own, ranks), ranks=ranks).policies
        self._runner = asyncio.Runner()
        return {name: _info(policy) for name, policy in self._policies.items()}

    def reads(self, path: str) -> bool:
        """Whether this machine sees a file."""
        return Path(path).is_file()

    def generate(
        self, name: str, requests: Sequence[GenerateRequest]
    ) -> list[list[TokenCompletion]]:
        return self._runner.run(_generate(self._policies[name], requests))

    def update(self, name: str, groups: Sequence[TrainingGroup]) -> UpdateStats:
        return self._updater(name).update(groups)

    def values(self, name: str, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        return self._updater(name).values(prompts)

    def fit_values(self, name: str, examples: Sequence[ValueExample]) -> ValueFit:
        return self._updater(name).fit_values(examples)

    def imitate(
        self, name: str, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """Ends early when the call is cancelled."""
        context = import_module("ray").get_runtime_context()
        for step in self._updater(name).imitate(demonstrations, imitation):
            yield step
            if context.is_canceled():
                return

    def save_state(self, name: str, directory: str) -> list[str]:
        """The files that are there then; see `Update.save_state`."""
        self._updater(name).save_state(Path(directory))
        return [path.name for path in Path(directory).iterdir()]

    def load_state(self, name: str, directory: str) -> None:
        self._updater(name).load_state(Path(directory))

    def save_pretrained(self, name: str, directory: str, final: str) -> None:
        self._updater(name).save_pretrained(Path(directory), final=Path(final))

    def release(self, name: str) -> None:
        self._sync(name).release()

    def push(self, name: str) -> None:
        self._sync(name).push()

    def _updater(self, name: str) -> Update:
        updater = self._policies[name].updater
        assert updater is not None, f"{name} is frozen"
        return updater

    def _sync(self, name: str) -> Sync:
        sync = self._policies[name].sync
        assert sync is not None, f"{name} generates with its own weights"
        return sync


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
    return list(await asyncio.gather(*map(policy.batcher.sample, requests)))


def _info(policy: ModelPolicy) -> PolicyInfo:
    return PolicyInfo(
        policy.encode,
        policy.encode_answer,
        policy.token_texts,
        policy.check_grammar,
        policy.batcher.engine.limits,
        policy.updater is not None,
        policy.sync is not None,
    )


class EnvWorker:
    """Environments of several kinds in a process of their own; see `Episodes`.

    Args:
        kinds: Id of an installed environment and its arguments, of each kind: made here.
        num_threads: Threads that step environments of a kind; 0: the main one.
    """

    def __init__(
        self, kinds: Mapping[str, tuple[str, Mapping[str, Any]]], num_threads: int
    ) -> None:
        self._kinds, self._num_threads = kinds, num_threads
        self._episodes: dict[str, LocalEpisodes] = {}

    async def build(self) -> None:
        """Make the environments.

        Raises:
            PettingLLMsError: They cannot be made here.
        """
        for kind in self._kinds:
            self._of(kind)

    def _of(self, kind: str) -> LocalEpisodes:
        if kind not in self._episodes:
            env_id, kwargs = self._kinds[kind]
            env = pettingllms.make(env_id, checks=False, **kwargs)
            self._episodes[kind] = LocalEpisodes(env, self._num_threads)
        return self._episodes[kind]

    async def start(self, kind: str, env_seed: int) -> tuple[int, EpisodeState]:
        return await self._of(kind).start(env_seed)

    async def branch(
        self, kind: str, episode: int, texts: Sequence[str]
    ) -> tuple[Branch | LostBranch, ...]:
        return await self._of(kind).branch(episode, texts)

    async def follow(self, kind: str, episode: int, index: int) -> EpisodeState:
        return await self._of(kind).follow(episode, index)

    async def successors(self, kind: str, episode: int) -> tuple[EpisodeState, ...]:
        return await self._of(kind).successors(episode)

    async def fork(self, kind: str, episode: int, index: int | None) -> tuple[int, EpisodeState]:
        return await self._of(kind).fork(episode, index)

    async def snapshot(self, kind: str, episode: int) -> Any:
        """The state of an episode; see `TextEnv.snapshot`."""
        return (await self._of(kind).environment(episode)).snapshot()

    async def close(self, kind: str, episode: int) -> None:
        await self._of(kind).close(episode)
