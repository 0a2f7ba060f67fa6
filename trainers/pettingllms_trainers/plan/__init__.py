"""What a run needs and does, estimated without loading weights: `pettingllms-train --dry-run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pettingllms_trainers.backends.hf.shapes import ModelShape, shape_of
from pettingllms_trainers.config import Config
from pettingllms_trainers.plan.gpus import Devices, devices_of
from pettingllms_trainers.plan.memory import USABLE, MemoryPlan, plan_memory
from pettingllms_trainers.plan.step import StepPlan, answer_lengths, plan_step
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.runs.lengths import Lengths, lengths_of, with_cpu_cache
from pettingllms_trainers.runs.prompts import RolePrompt, first_prompts

__all__ = ["Plan", "make_plan"]


class Plan(NamedTuple):
    """What a run will need and do."""

    devices: Devices
    shapes: dict[str, ModelShape]
    """Policy to the sizes of its model; fixed policies have none."""
    prompts: dict[str, RolePrompt]
    """Role to its longest prompt in the first turn."""
    lengths: dict[str, Lengths]
    """Policy to its longest sequences."""
    step: StepPlan
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
    """Return the plan of a run; nothing is written, and no weights are loaded.

    Args:
        config: The run's configuration.
        environments: What the run plays; it is not changed.
        num_gpus: GPUs to plan for; None for what the run would use here.
        gpu_gib: Memory of each GPU in GiB; None for that of the GPUs here, 80 without any.

    Raises:
        ConfigError: The sizes of a model are not known, or the device cannot be one.
    """
    devices = devices_of(config, num_gpus, gpu_gib)
    shapes = {name: shape_of(name, policy) for name, policy in config.models.items()}
    prompts = first_prompts(config, environments)
    if not devices.num_gpus:
        config = with_cpu_cache(config, prompts)
    lengths = lengths_of(config, shapes, prompts)
    step = plan_step(config, environments, lengths)
    every = config.evaluation.every
    middle = sum(step % every == 0 for step in range(1, config.num_steps)) if every else 0
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
        num_held_out=len(config.evaluation.ways)
        * sum(
            env.config.evaluation.num_episodes or config.evaluation.num_episodes
            for env in environments
        ),
    )


def _num_ranks(config: Config, devices: Devices) -> int:
    """Return how many processes share an update: Ray's workers of a policy, or all launched."""
    if config.ray.enabled:
        return config.ray.workers_per_policy
    # One process: the other GPUs are its engines'.
    is_spread = config.engine.kind == "vllm" and config.engine.vllm.tensor_parallel_size > 1
    return 1 if is_spread else max(devices.num_gpus, 1)
