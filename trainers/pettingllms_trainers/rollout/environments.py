"""The environments of a run, checked against its configuration. Needs no torch."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import pettingllms
from pettingllms import TextEnv, role_of
from pettingllms.errors import PettingLLMsError, suggestion
from pettingllms.workflows import WorkflowEnv
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError

__all__ = ["Environments", "held_out_kwargs", "make_environments"]


class Environments(NamedTuple):
    """What a run plays."""

    training: tuple[TextEnv[Any], ...]
    """One per stage of the curriculum, in order; without a curriculum one."""
    held_out: TextEnv[Any]
    """For evaluation."""


def held_out_kwargs(config: Config) -> dict[str, Any]:
    """Return the arguments of the held-out environment: `split="test"` unless another is named.

    An environment without splits gets no split.
    """
    factory = pettingllms.spec(config.env.id).load()
    has_splits = "split" in inspect.signature(factory).parameters
    default = {"split": "test"} if has_splits else {}
    return {**config.env.kwargs, **default, **config.evaluation.kwargs}


def make_environments(config: Config) -> Environments:
    """Return the training and the held-out environments, all able to make a level.

    Raises:
        PettingLLMsError: There is no such environment, it refuses an argument or cannot make
            levels of this kind, stages have different agents, or the configuration names a role
            or scripted policy that the environment lacks.
    """
    training = tuple(_make_stage(config, index) for index in range(len(config.env.stage_kwargs)))
    held_out = pettingllms.make(config.env.id, checks=False, **held_out_kwargs(config))
    _check_apart(config, [*training, held_out])
    _check_agents(config, training)
    env = training[0]
    _check_credit(config, env)
    roles = list(dict.fromkeys(map(role_of, env.possible_agents)))
    _check_roles(config, roles)
    known = env.scripted_policies
    _check_scripted("evaluation.scripted", config.evaluation.scripted, known)
    if config.warm_start.num_steps:
        demonstrators = config.warm_start.demonstrators
        missing = [role for role in roles if role not in demonstrators]
        if missing:
            raise ConfigError(
                f"warm_start.demonstrators has no line for the role {missing[0]!r}; name a "
                f"scripted policy of {config.env.id} for every role: {', '.join(known)}"
            )
        for role, names in demonstrators.items():
            _check_scripted(f"warm_start.demonstrators.{role}", list(names), known)
    held_out.reset(seed=0)
    return Environments(training, held_out)


def _make_stage(config: Config, index: int) -> TextEnv[Any]:
    """Return the environment of a stage, which has made a level."""
    try:
        env = pettingllms.make(config.env.id, checks=False, **config.env.stage_kwargs[index])
        env.reset(seed=0)
    except PettingLLMsError as error:
        if not config.env.curriculum:
            raise
        raise ConfigError(f"stage {index + 1} of env.curriculum: {error}") from error
    return env


def _check_apart(config: Config, environments: Sequence[TextEnv[Any]]) -> None:
    """Refuse what would train on held-out levels or without what an agent must know."""
    factory = pettingllms.spec(config.env.id).load()
    parameter = inspect.signature(factory).parameters.get("split")
    if parameter is not None:
        for kwargs in config.env.stage_kwargs:
            split = kwargs.get("split", parameter.default)
            if split == held_out_kwargs(config)["split"]:
                raise ConfigError(
                    f"training and evaluation both use split = {split!r}; name another one in "
                    "[env.kwargs], [[env.curriculum]] or [evaluation.kwargs]"
                )
    if {env.observation_mode for env in environments} != {"full"}:
        raise ConfigError(
            'observation_mode = "delta" cannot be trained: every decision is one prompt, without '
            'the chat before it; use observation_mode = "full"'
        )


def _check_agents(config: Config, training: Sequence[TextEnv[Any]]) -> None:
    first = training[0].possible_agents
    for number, env in enumerate(training, 1):
        if env.possible_agents != first:
            raise ConfigError(
                f"stage {number} of env.curriculum has the agents "
                f"{', '.join(env.possible_agents)}, and stage 1 has {', '.join(first)}; all stages "
                f"of {config.env.id} must have the same team"
            )


def _check_roles(config: Config, roles: Sequence[str]) -> None:
    problems = [f"the role {role!r} has no policy" for role in roles if role not in config.roles]
    problems += [
        f"{role!r} is no role of this environment" for role in config.roles if role not in roles
    ]
    if problems:
        raise ConfigError(
            f"[roles]: {'; '.join(problems)}. Roles of {config.env.id} with these arguments: "
            f"{', '.join(roles)}; give each one a line such as "
            f'{roles[0]} = "{next(iter(config.policies))}"'
        )


def _check_credit(config: Config, env: TextEnv[Any]) -> None:
    """Refuse to compare calls of a workflow by rewards that it does not have."""
    if not isinstance(env, WorkflowEnv) or env.has_step_rewards:
        return
    is_one_call = env.max_turns * len(env.possible_agents) == 1
    if config.advantage.credit == "step" and not is_one_call:
        raise ConfigError(
            f'advantage.credit = "step" compares answers by rewards of their own, and '
            f"{config.env.id} has a reward for its outcome only. Use advantage.credit = "
            '"continuation" or "value"; or rollout.mode = "parallel" with "return_to_go" or '
            '"episode"; or let the workflow report rewards with client.reward, and set '
            "step_rewards=True"
        )


def _check_scripted(key: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{key} names the scripted policy {name!r}{suggestion(name, known)}; the "
                f"environment has: {', '.join(known) or 'none'}"
            )
