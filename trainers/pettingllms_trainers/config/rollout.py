"""The part of a configuration that says how many episodes are played, and how they are sampled."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pettingllms_trainers.config.section import Section

_StopText = Annotated[str, Field(min_length=1)]


class RoleSamplingConfig(Section):
    """What is sampled otherwise for one role; keys that are left out are those of [rollout]."""

    temperature: float | None = Field(default=None, gt=0)
    """Sampling temperature of the role in training."""
    max_completion_tokens: int | None = Field(default=None, ge=1)
    """Longest completion of the role."""
    stop: tuple[_StopText, ...] | None = None
    """Texts that end a completion of the role."""


class RolloutConfig(Section):
    """How training episodes are sampled."""

    num_levels: int = Field(default=32, ge=1)
    """E: levels per train step."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of training. There is no top-p or top-k here: importance ratios are
    taken in the distribution that was sampled."""
    max_completion_tokens: int = Field(default=0, ge=0)
    """Longest completion; 0: 64 for tiny models, 512 for pretrained ones, 4096 where
    enable_thinking = true is among the chat_template_kwargs."""
    stop: tuple[_StopText, ...] = ()
    """Texts that end a completion."""
    per_role: dict[str, RoleSamplingConfig] = Field(default={})
    """Tables [rollout.per_role.ROLE] of what differs for a role."""
    max_failed_fraction: float = Field(default=0.05, ge=0, lt=1)
    """Share of a step's rollouts, and of its candidates, that may fail before the run stops."""
    max_refills: int = Field(default=0, ge=0)
    """Rounds of num_levels further levels that a train step may play, while a policy that is
    trained has fewer than min_groups groups whose rewards differ: the dynamic sampling of DAPO."""
    min_groups: int = Field(default=1, ge=1)
    """Groups whose rewards differ that every trained policy should have in a train step; counts
    with max_refills only. A group is what the algorithm compares, of one decision or many."""
    max_staleness: int = Field(default=0, ge=0)
    """k: the rollouts of the next k train steps are played while the policies learn, so that tokens
    are up to k updates old, and are weighted accordingly (loss.importance_cap). A step takes as
    long as the longer of both where engines compute elsewhere (vLLM). Above 1 long episodes are
    waited for less, and stragglers that would get older are dropped. The model that learns cannot
    generate meanwhile. 0: rollouts by the newest weights."""
    env_threads: int = Field(default=0, ge=0)
    """Threads that step environments while engines generate: for environments that run programs or
    verifiers. 0: none. With threads, what engines compute together depends on timing, so that a run
    on a CPU is repeated up to float rounding only."""
