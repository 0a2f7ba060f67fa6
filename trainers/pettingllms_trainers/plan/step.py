"""What one train step does at most: decisions, samples, tokens, optimizer steps."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms import TextEnv
from pettingllms.seeding import derive_seed
from pettingllms_trainers.backends.hf.local_files import tokenizer_of
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.roles import qualified
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.scripted import play_scripted_episode
from pettingllms_trainers.rollout.settings import RolloutSpec
from pettingllms_trainers.runs.lengths import Lengths

__all__ = ["StepPlan", "answer_lengths", "plan_step"]

_NUM_ANSWERED = 2
"""Levels that a scripted policy plays: in some environments each takes a second."""


class StepPlan(NamedTuple):
    """Upper limits of one train step."""

    num_levels: int
    """Those of all refills included."""
    num_turns: int
    agents: tuple[str, ...]
    num_decisions: int
    """Of all levels: turns times agents, every episode at its turn limit."""
    num_samples: int
    """Completions."""
    num_prompt_tokens: int
    num_completion_tokens: int
    num_groups: Mapping[str, int]
    """Decisions of the roles of each policy with a model."""
    num_optimizer_steps: Mapping[str, int]
    """Of each policy that is trained."""


def answer_lengths(config: Config, environments: Sequence[RunEnvironment]) -> dict[str, int | None]:
    """Return the tokens of the longest answer of every role in episodes of a scripted policy.

    Those of the environment's first scripted policy, its best; end tokens are included. None for
    roles whose model has no tokenizer on this machine, and for those of an environment without
    scripted policies.

    Args:
        config: The run's configuration.
        environments: What the run plays; it is not changed.
    """
    longest: dict[str, int | None] = {
        qualified(env.name, role): None
        for env in environments
        for role in env.roles
        if config.policy_of(qualified(env.name, role)) in config.models
    }
    scripted = [(env, stage) for env, stage in _stages(environments) if stage.scripted_policies]
    for (env, stage), level in itertools.product(scripted, range(_NUM_ANSWERED)):
        seed = derive_seed(config.seed, "planned level", level)
        policies = {role: {stage.scripted_policies[0]: 1.0} for role in env.roles}
        spec = RolloutSpec(level, seed, seed)
        for decision in play_scripted_episode(stage, spec, policies).decisions:
            role = qualified(env.name, decision.role)
            policy = config.models.get(config.policy_of(role) or "")
            tokenizer = None if policy is None else tokenizer_of(policy)
            if tokenizer is not None:
                size = 1 + len(
                    tokenizer.encode(decision.text, add_special_tokens=False, verbose=False)
                )
                longest[role] = max(size, longest[role] or 0)
    return longest


def _stages(
    environments: Sequence[RunEnvironment],
) -> list[tuple[RunEnvironment, TextEnv[Any]]]:
    return [(env, stage) for env in environments for stage in env.training]


def plan_step(
    config: Config, environments: Sequence[RunEnvironment], lengths: Mapping[str, Lengths]
) -> StepPlan:
    """Return the upper limits of a train step.

    With several environments each figure is the maximum over them, as if one had all levels.

    Args:
        config: The run's configuration.
        environments: What the run plays.
        lengths: Longest sequences of every policy with a model.
    """
    plans = [_plan_of(config, env, lengths) for env in environments]
    most = max(plans, key=lambda plan: plan.num_decisions)
    sums = ("num_samples", "num_prompt_tokens", "num_completion_tokens")
    return most._replace(
        **{name: max(getattr(plan, name) for plan in plans) for name in sums},
        **{
            field: {n: max(getattr(plan, field)[n] for plan in plans) for n in getattr(most, field)}
            for field in ("num_groups", "num_optimizer_steps")
        },
    )


def _plan_of(config: Config, env: RunEnvironment, lengths: Mapping[str, Lengths]) -> StepPlan:
    rollout, algorithm, optimizer = config.rollout, config.algorithm, config.optimizer
    agents = tuple(env.training[0].possible_agents)  # those of all stages
    num_turns = max(stage.max_turns for stage in env.training)
    num_levels = rollout.num_levels * (1 + rollout.max_refills)
    num_episodes = num_levels * algorithm.episodes_per_level
    num_samples = algorithm.candidates_per_decision
    per_agent = num_episodes * num_turns
    assigned = [config.policy_of(env.role(agent)) or "" for agent in agents]
    asked = [lengths[name] for name in assigned if name in lengths]
    num_groups = {name: per_agent * assigned.count(name) for name in config.models}
    return StepPlan(
        num_levels=num_levels,
        num_turns=num_turns,
        agents=agents,
        num_decisions=per_agent * len(agents),
        num_samples=per_agent * num_samples * len(asked),
        num_prompt_tokens=per_agent * sum(each.prompt for each in asked),
        num_completion_tokens=per_agent * num_samples * sum(each.completion for each in asked),
        num_groups=num_groups,
        num_optimizer_steps={
            name: optimizer.num_epochs
            * optimizer.num_minibatches(num_groups[name] * num_samples, num_groups[name])
            for name, policy in config.models.items()
            if not policy.frozen
        },
    )
