"""What one train step does at most: decisions, samples, tokens, optimizer steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms import TextEnv
from pettingllms.seeding import derive_seed
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.policies import PolicyConfig
from pettingllms_trainers.config.roles import qualified
from pettingllms_trainers.plan.memory import Lengths
from pettingllms_trainers.plan.models import tokenizer_of
from pettingllms_trainers.plan.shapes import ModelShape
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.rollout.scripted import play_scripted_episode
from pettingllms_trainers.rollout.settings import RolloutSpec

__all__ = ["RolePrompt", "StepPlan", "answer_lengths", "first_prompts", "lengths_of", "plan_step"]

_NUM_LEVELS = 8
_NUM_ANSWERED = 2
"""Levels that a scripted policy plays: in some environments each takes a second."""
_TEMPLATE_BYTES = 64

CountTokens = Callable[[Sequence[Mapping[str, str]]], int]


class RolePrompt(NamedTuple):
    """The longest prompt of a role in the first turn of some training levels."""

    num_tokens: int
    is_measured: bool
    """False: one token for every byte, because there is no tokenizer on this machine."""


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


def first_prompts(config: Config, environments: Sequence[RunEnvironment]) -> dict[str, RolePrompt]:
    """Return the longest first-turn prompt of every role that a model plays.

    Args:
        config: The run's configuration.
        environments: What the run plays; it is not changed.
    """
    longest: dict[str, RolePrompt] = {}
    for (env, stage), level in itertools.product(_stages(environments), range(_NUM_LEVELS)):
        probe = stage.fork()
        probe.reset(seed=derive_seed(config.seed, "planned level", level))
        for agent in probe.possible_agents:
            role = env.role(agent)
            policy = config.models.get(config.policy_of(role) or "")
            if policy is not None:
                count = _counter(policy)
                messages = probe.messages(agent)
                size = _num_bytes(messages) if count is None else count(messages)
                known = longest.get(role, RolePrompt(0, False))
                longest[role] = RolePrompt(max(size, known.num_tokens), count is not None)
    return longest


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


def lengths_of(
    config: Config, shapes: Mapping[str, ModelShape], prompts: Mapping[str, RolePrompt]
) -> dict[str, Lengths]:
    """Return the longest sequences of every policy.

    A prompt can grow up to what the engine takes beside a completion; where no limit is set, it is
    taken as a first prompt with one more completion, of another agent, in it.
    """
    lengths: dict[str, Lengths] = {}
    longest = {
        role: sampling_of(config.rollout, role).max_completion_tokens
        for role in {*config.roles, *prompts}
    }
    for name, shape in shapes.items():
        roles = [role for role in prompts if config.policy_of(role) == name]
        completion = max(longest[role] for role in roles)
        limit = shape.context_length
        if config.engine.kind == "vllm" and config.engine.vllm.max_model_len:
            prompt = min(config.engine.vllm.max_model_len, limit) - completion
        else:
            first = max(prompts[role].num_tokens for role in roles)
            prompt = min(first + max(longest.values()), max(limit - completion, 1))
        lengths[name] = Lengths(max(prompt, 1), completion)
    return lengths


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


def _num_bytes(messages: Sequence[Mapping[str, str]]) -> int:
    return sum(len(message["content"].encode()) + _TEMPLATE_BYTES for message in messages)


def _counter(policy: PolicyConfig) -> CountTokens | None:
    tokenizer = tokenizer_of(policy)
    if tokenizer is None or tokenizer.chat_template is None:
        return None

    def count(messages: Sequence[Mapping[str, str]]) -> int:
        ids = tokenizer.apply_chat_template(
            list(messages),
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **(policy.chat_template_kwargs or {}),
        )
        return len(ids)

    return count
