"""What a run needs and does, estimated without loading weights: `pettingllms-train --dry-run`."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from pettingllms.errors import counted
from pettingllms_trainers.backends.device import computes_on_gpu
from pettingllms_trainers.backends.hf.shapes import ModelShape, shape_of
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import base_groups
from pettingllms_trainers.plan.memory import USABLE, MemoryPlan, plan_memory
from pettingllms_trainers.ranks import num_launched
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.runs.prompts import (
    RolePrompt,
    answer_lengths,
    first_prompts,
    lengths_of,
    with_cpu_cache,
)
from pettingllms_trainers.types import Lengths

__all__ = ["Devices", "Plan", "StepPlan", "make_plan"]

_GIB = 1 << 30


class Devices(NamedTuple):
    """The devices that a run is planned for."""

    found: str
    """The processors of this machine, for people."""
    num_gpus: int
    """GPUs; 0 when the run computes on the CPU."""
    num_bytes: int
    """Memory of one GPU, or of the machine without one."""
    num_wanted: float
    """GPUs that Ray is asked for; 0 without Ray."""

    @property
    def wanted(self) -> str:
        """The planned devices, for people."""
        size = f"{self.num_bytes / _GIB:.0f} GiB"
        if not self.num_gpus:
            return f"the CPU, {size}"
        return f"{counted(self.num_gpus, 'GPU')} of {size}"


class StepPlan(NamedTuple):
    """Upper limits of one train step."""

    num_levels: int
    """Levels, those of all refills included."""
    num_turns: int
    agents: tuple[str, ...]
    """Who acts in every turn."""
    num_decisions: int
    """Decisions of all levels: turns times agents, every episode at its turn limit."""
    num_samples: int
    """Completions of policies with a model."""
    num_continued: int
    """Those of them that are in continuations."""
    num_prompt_tokens: int
    """Tokens of their prompts, one for each decision, also of continuations."""
    num_completion_tokens: int
    num_groups: Mapping[str, int]
    """Policy with a model to the decisions of its roles."""
    num_optimizer_steps: Mapping[str, int]
    """Trained policy to its optimizer steps."""


class Plan(NamedTuple):
    """What a run will need and do."""

    devices: Devices
    """What it is planned for."""
    shapes: dict[str, ModelShape]
    """Policy to the sizes of its model; fixed policies have none."""
    prompts: dict[str, RolePrompt]
    """Role to its longest prompt in the first turn."""
    lengths: dict[str, Lengths]
    """Policy to its longest sequences."""
    step: StepPlan
    """Upper limits of a train step."""
    memory: MemoryPlan
    answers: dict[str, int | None]
    """Role to the tokens of its longest answer in episodes of a scripted policy."""
    num_evaluations: int
    """Held-out evaluations of the run, the one before training included."""
    num_held_out: int
    """Held-out episodes of one evaluation, in all ways of decoding."""

    @property
    def fits(self) -> bool:
        """Whether the estimate leaves room on the device."""
        return self.memory.peak <= USABLE * self.devices.num_bytes


def make_plan(
    config: Config,
    environments: Sequence[RunEnvironment],
    *,
    num_gpus: int | None = None,
    gpu_gib: float | None = None,
) -> Plan:
    """The plan of a run; nothing is written, and no weights are loaded.

    Args:
        environments: What the run plays; it is not changed.
        num_gpus: GPUs to plan for, whatever is here; None for what the run would use here.
        gpu_gib: Memory of each GPU in GiB; None for that of the GPUs here, 80 without any.

    Raises:
        ConfigError: The sizes of a model are not known, or the device cannot be one.
    """
    devices = _devices(config, num_gpus, gpu_gib)
    prompts = first_prompts(config, environments)
    # On a CPU vLLM's cache is sized by the run, on a GPU by what is left of it.
    if not devices.num_gpus:
        config = with_cpu_cache(config, prompts)
    shapes = {name: shape_of(name, policy) for name, policy in config.models.items()}
    lengths = lengths_of(config, shapes, prompts)
    step = _plan_step(config, environments, lengths)
    every, evaluation = config.evaluation.every, config.evaluation
    middle = sum(step % every == 0 for step in range(1, config.num_steps)) if every else 0
    levels = (env.config.evaluation.num_episodes or evaluation.num_episodes for env in environments)
    return Plan(
        devices=devices,
        shapes=shapes,
        prompts=prompts,
        lengths=lengths,
        step=step,
        memory=plan_memory(
            config,
            shapes,
            lengths,
            num_ranks=_num_ranks(config, devices),
            gpu_bytes=devices.num_bytes,
            num_groups=step.num_groups,
            num_roles=Counter(policy for env in environments for policy in env.roles.values()),
            has_gpu=devices.num_gpus > 0,
        ),
        answers=answer_lengths(config, environments),
        num_evaluations=1 + middle + (config.num_steps > 0),
        num_held_out=len(evaluation.ways) * sum(levels),
    )


def _devices(config: Config, num_gpus: int | None, gpu_gib: float | None) -> Devices:
    """The devices to plan for: those given, else those that the run would use here."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    sizes = [torch.cuda.get_device_properties(index).total_memory for index in range(count)]
    host, here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), min(sizes, default=0)
    found = f"{os.cpu_count()} CPU cores, {host / _GIB:.0f} GiB, "
    found += f"{counted(count, 'GPU')} of {here / _GIB:.0f} GiB" if count else "no GPU"
    ray = config.ray
    wanted = ray.enabled * ray.workers_per_policy * ray.gpus_per_worker
    wanted *= len(base_groups(config.models))
    launched = count if config.engine.num_shards > 1 and count else num_launched()
    # Ray takes what the machine has; other runs have a process for each GPU that was started.
    number = num_gpus or (count or math.ceil(wanted) if wanted else launched)
    is_on_gpu = computes_on_gpu(config, number)  # raises where the device cannot be one
    if num_gpus is None and gpu_gib is None and not is_on_gpu:
        return Devices(found, 0, host, wanted)
    size = round(gpu_gib * _GIB) if gpu_gib is not None else here or 80 * _GIB
    return Devices(found, number, size, wanted)


def _num_ranks(config: Config, devices: Devices) -> int:
    """How many processes share an update: Ray's workers of a policy, or all launched."""
    if config.ray.enabled:
        return config.ray.workers_per_policy
    # One process: the other GPUs are its engines'.
    return 1 if config.engine.num_shards > 1 else max(devices.num_gpus, 1)


def _plan_step(
    config: Config, environments: Sequence[RunEnvironment], lengths: Mapping[str, Lengths]
) -> StepPlan:
    """The upper limits of a train step.

    With several environments each figure is the maximum over them, as if one had all levels.
    """
    plans = [_plan_of(config, env, lengths) for env in environments]
    # Levels are drawn by weight: each environment might get all of a step, so none is averaged.
    most = max(plans, key=lambda plan: plan.num_decisions)
    columns = dict(zip(StepPlan._fields, zip(*plans, strict=True), strict=True))
    sums = ("num_samples", "num_continued", "num_prompt_tokens", "num_completion_tokens")
    found: dict[str, Any] = {name: max(columns[name]) for name in sums}
    for name in ("num_groups", "num_optimizer_steps"):
        tables: tuple[Mapping[str, int], ...] = columns[name]
        found[name] = {policy: max(table[policy] for table in tables) for policy in tables[0]}
    return most._replace(**found)


def _plan_of(config: Config, env: RunEnvironment, lengths: Mapping[str, Lengths]) -> StepPlan:
    rollout, algorithm, optimizer = config.rollout, config.algorithm, config.optimizer
    agents = tuple(env.training[0].possible_agents)  # those of all stages
    num_turns = max(stage.max_turns for stage in env.training)
    num_levels = rollout.num_levels * (1 + rollout.max_refills)
    num_samples = algorithm.candidates_per_decision
    num_episodes = num_levels * algorithm.episodes_per_level
    per_agent = num_episodes * num_turns
    assigned = [config.policy_of(env.role(agent)) or "" for agent in agents]
    # Each decision is taken once more in every continuation from a decision before it.
    again = list(accumulate(algorithm.continuations(num_turns * len(agents))[:-1], initial=0))
    continued = [num_episodes * sum(again[index :: len(agents)]) for index in range(len(agents))]
    asked = [
        (lengths[name], number)
        for name, number in zip(assigned, continued, strict=True)
        if name in lengths
    ]
    own = per_agent * num_samples
    # At most: which decisions have a signal is known when they are played.
    num_groups = {name: per_agent * assigned.count(name) for name in config.models}
    return StepPlan(
        num_levels=num_levels,
        num_turns=num_turns,
        agents=agents,
        num_decisions=per_agent * len(agents),
        num_samples=sum(own + number for _, number in asked),
        num_continued=sum(number for _, number in asked),
        num_prompt_tokens=sum((per_agent + number) * each.prompt for each, number in asked),
        num_completion_tokens=sum((own + number) * each.completion for each, number in asked),
        num_groups=num_groups,
        num_optimizer_steps={
            name: optimizer.num_epochs
            * optimizer.num_minibatches(num_groups[name] * num_samples, num_groups[name])
            for name, policy in config.models.items()
            if not policy.frozen
        },
    )
