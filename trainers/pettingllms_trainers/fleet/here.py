"""The speeds of this machine, fitted to train steps that are taken here."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from pettingllms import TextEnv
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import base_groups
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.fleet.simulate import Speeds, learning_bases
from pettingllms_trainers.fleet.speeds import EngineCall, LearningSpeed, fitted, non_negative
from pettingllms_trainers.fleet.workload import Workload, from_trees
from pettingllms_trainers.policies.pool import Batcher, PolicyPool
from pettingllms_trainers.policies.protocols import Generate, Update
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.runs.measuring import measured
from pettingllms_trainers.types import (
    GenerateRequest,
    RequestLimits,
    RolloutTree,
    TokenCompletion,
    TrainingGroup,
    UpdateStats,
)

_NUM_PROBED = 2
"""Train steps in which parts of the batches are computed once more, after those that count."""
_PART = 4
"""Such a part is every fourth request or group of a batch."""


class Here(NamedTuple):
    """What was measured on this machine."""

    speeds: Speeds
    workload: Workload
    """The episodes of the measured train steps."""
    step_s: Sequence[float]
    """Wall time of each of them."""


class Learnt(NamedTuple):
    """A measured update."""

    num_steps: int
    """Optimizer steps."""
    num_tokens: int
    """Tokens of prompts and answers, as for `LearningSpeed.update_s`."""
    num_answer_tokens: int
    """Tokens of answers alone."""
    seconds: float
    """Wall time."""


def measured_here(
    config: Config, environments: Sequence[RunEnvironment], *, num_steps: int
) -> Here:
    """Take train steps with untrained policies, and fit what engines and updates take.

    Each call of an engine has to be timed alone: one that takes requests while it computes gets
    one batch after another here, and rollouts wait for updates. In the last train steps, which do
    not count, parts of the batches are computed once more: what depends on the size of a batch is
    not to be seen in batches that are all alike. They come last, since policies learn from such
    parts too, and after them play better than those of a run do.

    Args:
        num_steps: Train steps, at least 1.

    Raises:
        ConfigError: Engines of several policies take requests while they compute.
        PettingLLMsError: A train step failed.
    """
    if config.engine.can.takes_requests and len(config.models) > 1:
        raise ConfigError(
            f'the engines "{config.engine.kind}" of {len(config.models)} policies write at the '
            "same time, so that the seconds of none are its own; measure with one policy or with "
            'engine.kind = "transformers", or name a GPU'
        )
    in_turn = config.rollout.model_copy(update={"max_staleness": 0})
    config = config.model_copy(update={"rollout": in_turn})
    # The first step has libraries to load.
    watch = Watch(config, 1 + num_steps)
    found = measured(
        config, environments, Ranks(), num_steps=1 + num_steps + _NUM_PROBED, watch=watch.watched
    )
    steps = found.steps[1:-_NUM_PROBED]
    trees = [tree for played in found.trees[1:-_NUM_PROBED] for tree in played]
    env = environments[0].training[0]
    workload = from_trees(trees, env.stages, steps, asyncio.run(_branch_s(env, trees)))
    groups = base_groups(config.models)
    engines = {g[0]: fitted([call for name in g for call in watch.calls[name][1:]]) for g in groups}
    learning = {
        base: _learning([one for name in names for one in watch.learnt[name][1:]], names, steps)
        for base, names in learning_bases(config).items()
    }
    return Here(Speeds(engines, learning), workload, [step["time/step_s"] for step in steps])


async def _branch_s(env: TextEnv[Any], trees: Sequence[RolloutTree]) -> float:
    """What the environment takes for an answer: the first ones of all episodes, again."""
    episodes, texts, spent_s = LocalEpisodes(env), 0, 0.0
    for tree in trees:
        if not tree.decisions or tree.prefix:
            continue
        # First decisions alone: their states are there after a reset, without playing up to them.
        answers = [candidate.completion.text for candidate in tree.decisions[0].candidates]
        episode, _ = await episodes.start(tree.env_seed)
        started = time.perf_counter()
        await episodes.branch(episode, answers)
        spent_s += time.perf_counter() - started
        texts += len(answers)
        await episodes.close(episode)
    return spent_s / texts


def _learning(
    learnt: Sequence[Learnt], names: Sequence[str], steps: Sequence[Mapping[str, float]]
) -> LearningSpeed:
    if not learnt:
        raise ConfigError(
            f"no update of {' and '.join(names)} could be measured: in these train steps none of "
            "the answers that are trained on earned different rewards. Take more "
            "rollout.num_levels, leave updates.phases out, or name a GPU"
        )
    rows = np.array([one[:-1] for one in learnt], float)
    seconds = np.array([one.seconds for one in learnt])
    # What belongs to nothing else is the updates', too: advantages, what is recorded.
    rest = [step["time/step_s"] - step["time/rollout_s"] - step["time/sync_s"] for step in steps]
    share = sum(rest) / sum(step["time/update_s"] for step in steps)
    optimizer_step_s, token_s, answer_s = non_negative(rows, share * seconds)
    return LearningSpeed(
        optimizer_step_s, token_s, answer_s, float(np.mean([step["time/sync_s"] for step in steps]))
    )


class Watch:
    """Times what the policies of a run compute.

    Args:
        config: The run that is measured.
        num_unprobed: Train steps after which parts of batches are computed once more.
    """

    def __init__(self, config: Config, num_unprobed: int) -> None:
        self.config, self._num_unprobed = config, num_unprobed
        self.calls: dict[str, list[EngineCall]] = {}
        """Policy to the calls of its engine."""
        self.learnt: dict[str, list[Learnt]] = {}
        """Policy to its updates."""
        self.num_updates = 0

    @property
    def is_probing(self) -> bool:
        """Whether parts of batches are to be computed once more."""
        steps = range(self._num_unprobed)
        names = self.config.models
        return self.num_updates >= sum(
            self.config.updates_policy(name, step) for name in names for step in steps
        )

    def watched(self, pool: PolicyPool) -> PolicyPool:
        """The policies with engines that answer one batch after another, all timed."""
        overlaps = self.config.rollout.env_threads > 0
        policies = dict(pool.policies)
        for name, policy in pool.policies.items():
            self.calls[name], self.learnt[name] = [], []
            engine = _WatchedEngine(self, name, policy.batcher.engine)
            updater = None
            if policy.updater is not None:
                updater = cast(Update, _WatchedUpdate(self, name, policy.updater))
            policies[name] = dataclasses.replace(
                policy, batcher=Batcher(engine, overlaps=overlaps), updater=updater
            )
        return dataclasses.replace(pool, policies=policies)


class _WatchedEngine:
    """An engine (`Generate`) that gets one batch after another, whose calls are timed."""

    is_concurrent = False

    def __init__(self, watch: Watch, name: str, engine: Generate) -> None:
        self._watch, self._calls, self._engine = watch, watch.calls[name], engine

    @property
    def limits(self) -> RequestLimits:
        return self._engine.limits

    def check(self, request: GenerateRequest) -> None:
        self._engine.check(request)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        found = await self._timed(requests)
        if self._watch.is_probing:
            # Fewer requests, then fewer candidates: what each of them takes can only then be told
            # apart.
            await self._timed(requests[::_PART])
            await self._timed([dataclasses.replace(one, num_candidates=1) for one in requests])
        return found

    async def _timed(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        started, begun_s = time.perf_counter(), time.process_time()
        found = await self._engine.generate(requests)
        seconds, client_s = time.perf_counter() - started, time.process_time() - begun_s
        pairs = [
            (len(request.prompt_ids), len(completion.token_ids))
            for request, completions in zip(requests, found, strict=True)
            for completion in completions
        ]
        # Equal prompts of a call are read once.
        read = sum(map(len, {request.prompt_ids for request in requests}))
        prompts, lengths = zip(*pairs, strict=True)
        self._calls.append(EngineCall(len(requests), read, lengths, prompts, seconds, client_s))
        return found


class _WatchedUpdate:
    """An updater (`Update`) whose updates are timed."""

    def __init__(self, watch: Watch, name: str, updater: Update) -> None:
        self._watch, self._learnt, self._updater = watch, watch.learnt[name], updater

    def __getattr__(self, name: str) -> Any:
        return getattr(self._updater, name)

    @property
    def base(self) -> object:
        return self  # alone, so that its seconds are its own

    def update_together(
        self, updates: Sequence[tuple[Any, Sequence[TrainingGroup]]]
    ) -> list[UpdateStats]:
        ((_, groups),) = updates
        stats = self._timed(groups)
        if self._watch.is_probing and groups:
            for part in _parts(groups):
                self._timed(part)
        self._watch.num_updates += 1
        return [stats]

    def _timed(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        started = time.perf_counter()
        (stats,) = self._updater.update_together([(self._updater, groups)])
        seconds = time.perf_counter() - started
        if stats.num_optimizer_steps:
            optimizer = self._watch.config.optimizer
            written = sum(len(one.token_ids) for group in groups for one in group.completions)
            read = written + sum(
                len(group.prompt_ids) * (1 if optimizer.packing else len(group.completions))
                for group in groups
            )
            numbers = optimizer.num_epochs * read, optimizer.num_epochs * written
            self._learnt.append(Learnt(stats.num_optimizer_steps, *numbers, seconds))
        return stats


def _parts(groups: Sequence[TrainingGroup]) -> Iterator[list[TrainingGroup]]:
    """A part of the prompts with all their answers, and all prompts with a part of them."""
    yield list(groups[::_PART])
    yield [
        dataclasses.replace(
            group, completions=group.completions[: -(-len(group.completions) // _PART)]
        )
        for group in groups
    ]
