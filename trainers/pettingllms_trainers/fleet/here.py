"""The speeds of this machine, fitted to train steps that are taken here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.policies import base_groups
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.fleet.simulate import Speeds
from pettingllms_trainers.fleet.speeds import Call, LearningSpeed, fitted, non_negative
from pettingllms_trainers.fleet.workload import Workload, from_trees
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.policies.protocols import Generate
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.runs.measuring import measured
from pettingllms_trainers.types import GenerateRequest, RequestLimits, TokenCompletion


class Here(NamedTuple):
    """What was measured on this machine."""

    speeds: Speeds
    workload: Workload
    step_s: Sequence[float]
    """Each measured train step."""


def measured_here(
    config: Config, environments: Sequence[RunEnvironment], *, num_steps: int
) -> Here:
    """Take train steps with untrained policies, and fit what engines and updates take.

    Args:
        config: The run. Its engines answer one call after another, so that each can be timed.
        environments: What it plays: one.
        num_steps: Train steps, at least 2.

    Raises:
        ConfigError: Its engines take requests while they compute.
        PettingLLMsError: A train step failed.
    """
    if config.engine.can.takes_requests:
        raise ConfigError(
            f'engine.kind = "{config.engine.kind}" answers many requests at a time, whose seconds '
            'are not its own; measure with engine.kind = "transformers", or name a GPU (--gpu)'
        )
    calls: dict[str, list[Call]] = {name: [] for name in config.models}

    def watch(pool: PolicyPool) -> None:
        for name, policy in pool.policies.items():
            policy.batcher.engine = _Watched(policy.batcher.engine, calls[name])

    found = measured(config, environments, Ranks(), num_steps=num_steps, watch=watch)
    workload = from_trees(found.trees, environments[0].training[0].stages, found.steps)
    groups = base_groups(config.models)
    engines = {g[0]: fitted([call for name in g for call in calls[name]]) for g in groups}
    learning = _learning(config, workload, found.steps)
    speeds = Speeds(engines, {group[0]: learning for group in groups})
    return Here(speeds, workload, [step["time/step_s"] for step in found.steps])


def _learning(
    config: Config, workload: Workload, steps: Sequence[Mapping[str, float]]
) -> LearningSpeed:
    """Return what fits the updates of some train steps best; of all policies alike."""
    prompts: dict[str, list[int]] = {}
    for step in (step for episode in workload.episodes for step in episode):
        prompts.setdefault(step.agent, []).append(step.num_prompt_tokens)
    mean = float(np.mean([length for lengths in prompts.values() for length in lengths]))
    rows: list[tuple[float, float]] = []
    for metrics in steps:
        tokens = num = 0.0
        for name in config.models:
            copies = "num_groups" if config.optimizer.packing else "num_completions"
            tokens += (
                metrics[f"update/{name}/num_tokens"] + mean * metrics[f"update/{name}/{copies}"]
            )
            num += metrics[f"update/{name}/num_optimizer_steps"]
        rows.append((num, tokens * config.optimizer.num_epochs))
    # What belongs to nothing else is the update's, too: advantages, what is recorded.
    seconds = [
        metrics["time/step_s"] - metrics["time/rollout_s"] - metrics["time/sync_s"]
        for metrics in steps
    ]
    optimizer_step_s, token_s = non_negative(np.array(rows), np.array(seconds))
    sync_s = float(np.mean([metrics["time/sync_s"] for metrics in steps]))
    return LearningSpeed(optimizer_step_s, token_s, sync_s)


class _Watched:
    """An engine (`Generate`) whose calls are timed."""

    def __init__(self, engine: Generate, calls: list[Call]) -> None:
        self._engine, self._calls = engine, calls
        self.is_concurrent = engine.is_concurrent

    @property
    def limits(self) -> RequestLimits:
        return self._engine.limits

    def check(self, request: GenerateRequest) -> None:
        self._engine.check(request)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        started = time.perf_counter()
        found = await self._engine.generate(requests)
        seconds = time.perf_counter() - started
        pairs = [
            (len(request.prompt_ids), len(completion.token_ids))
            for request, completions in zip(requests, found, strict=True)
            for completion in completions
        ]
        read = sum(len(request.prompt_ids) for request in requests)
        prompts, lengths = zip(*pairs, strict=True)
        self._calls.append(Call(read, lengths, prompts, seconds))
        return found
