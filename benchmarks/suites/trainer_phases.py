"""Where the time of train steps goes: runs of the real `Trainer` whose parts look at a clock."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pettingllms_trainers.backends.build import build_policies, build_pool
from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.batcher import Batcher
from pettingllms_trainers.policies.pool import ModelPolicy
from pettingllms_trainers.policies.protocols import Encode
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.rollout.episode import (
    Branch,
    EpisodesOfEnv,
    EpisodeState,
    local_episodes,
)
from pettingllms_trainers.runs.assembly import build_trainer
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.progress import ProgressView
from pettingllms_trainers.runs.recorder import Recorder
from pettingllms_trainers.runs.trackers import Trackers
from pettingllms_trainers.runs.train import Trainer
from pettingllms_trainers.stopping import StopRequest
from pettingllms_trainers.types import GenerateRequest, TokenCompletion, TrainingGroup, UpdateStats

PHASES: tuple[str, ...] = ("environment", "encode", "generate", "update", "other")
"""`encode`: chat template and tokenizer; `other`: whatever else a step does, from the joining of
requests to the metrics that are written."""

ResultT = TypeVar("ResultT")


class Step(NamedTuple):
    """What a train step took and did."""

    seconds: dict[str, float]
    """CPU seconds by phase; together they are the step."""
    num_decisions: int
    """Groups that were sampled."""
    num_prompt_tokens: int
    """Prompts, each once per group."""
    num_sampled_tokens: int
    num_trained_tokens: int
    """Sampled tokens of groups with a signal."""


class Clock:
    """CPU seconds by phase; a phase inside of another one is not counted to the other."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._open = ["other"]
        self._since = time.process_time()

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Count what happens inside to a phase."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    async def awaited(self, phase: str, work: Awaitable[ResultT]) -> ResultT:
        """Return the result of what computes without letting other coroutines run."""
        with self.phase(phase):
            return await work

    def take(self) -> dict[str, float]:
        """Return the seconds since the last call."""
        self._charge()
        seconds, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return seconds

    def _charge(self) -> None:
        now = time.process_time()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now


class Watched:
    """Wraps an object and forwards all other attributes."""

    def __init__(self, inner: Any, clock: Clock) -> None:
        self._inner, self._clock = inner, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class WatchedEpisodes(Watched):
    """Where environments are played, in this thread."""

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        """Begin an episode."""
        return await self._clock.awaited("environment", self._inner.start(env_seed))

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch, ...]:
        """Score texts of the acting agent."""
        return await self._clock.awaited("environment", self._inner.branch(episode, texts))

    async def follow(self, episode: int, index: int) -> EpisodeState:
        """Continue with one branch."""
        return await self._clock.awaited("environment", self._inner.follow(episode, index))


class WatchedModel(Watched):
    """An engine or an updater in this process."""

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """Sample."""
        return await self._clock.awaited("generate", self._inner.generate(requests))

    def update(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        """Learn."""
        with self._clock.phase("update"):
            return self._inner.update(groups)


class Encoder:
    """How a policy reads, and how many prompt tokens it has read."""

    def __init__(self, encode: Encode, clock: Clock) -> None:
        self._encode, self._clock = encode, clock
        self.num_tokens = 0

    def __call__(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Return the prompt tokens of a chat."""
        with self._clock.phase("encode"):
            tokens = self._encode(messages)
        self.num_tokens += len(tokens)
        return tokens


def _watched(policy: ModelPolicy, clock: Clock) -> ModelPolicy:
    engine: Any = WatchedModel(policy.batcher.engine, clock)
    updater: Any = WatchedModel(policy.updater, clock)
    return replace(
        policy,
        encode=Encoder(policy.encode, clock),
        batcher=Batcher(engine),
        updater=updater,
    )


def run(config: Config, num_steps: int) -> list[Step]:
    """Return some train steps of a run, without the first one, in which the libraries warm up.

    Args:
        config: The run; its engine is transformers in this process, no policy is frozen.
        num_steps: Steps that are returned.
    """
    clock = Clock()
    environments = make_environments(config)
    files = RunDirectory(Path(config.output_dir))
    files.open(config)
    pool = build_pool(config, build_policies(config))
    policies = {name: _watched(policy, clock) for name, policy in pool.policies.items()}
    ((training, held_out),) = local_episodes(config, environments)
    watched: Any = WatchedEpisodes(training[0], clock)
    with asyncio.Runner() as runner:
        trainer = build_trainer(
            config,
            environments,
            replace(pool, policies=policies),
            Recorder(files, config, ProgressView(), Trackers(files.directory, config)),
            files,
            episodes=[EpisodesOfEnv((watched,), held_out)],
            stop=StopRequest(),
            runner=runner,
        )
        return [_step(trainer, index, clock) for index in range(1 + num_steps)][1:]


def _step(trainer: Trainer, index: int, clock: Clock) -> Step:
    """Take a whole train step: what `Trainer.run` repeats."""
    num_read = _num_read(trainer)
    clock.take()
    metrics = trainer._take_step(index)
    seconds = clock.take()
    if metrics is None:
        raise SystemExit("stopped by a signal")
    return Step(
        seconds=seconds,
        num_decisions=_total(metrics, "role/[^/]+/num_decisions"),
        num_prompt_tokens=_num_read(trainer) - num_read,
        num_sampled_tokens=_total(metrics, "rollout/num_completion_tokens"),
        num_trained_tokens=_total(metrics, "update/[^/]+/num_tokens"),
    )


def _num_read(trainer: Trainer) -> int:
    encoders: list[Any] = [policy.encode for policy in trainer.pool.policies.values()]
    return sum(encoder.num_tokens for encoder in encoders)


def _total(metrics: Mapping[str, float], pattern: str) -> int:
    return int(sum(value for name, value in metrics.items() if re.fullmatch(pattern, name)))
