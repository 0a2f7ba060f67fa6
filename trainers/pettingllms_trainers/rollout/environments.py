"""The environments of a run, checked against its configuration. Needs no torch."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pettingllms
from pettingllms import TextEnv, role_of
from pettingllms.errors import suggestion
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError

__all__ = ["held_out_kwargs", "make_environments"]


def held_out_kwargs(config: Config) -> dict[str, Any]:
    """Return the arguments of the held-out environment: `split="test"` unless another is named.

    An environment without splits gets no split.
    """
    factory = pettingllms.spec(config.env.id).load()
    has_splits = "split" in inspect.signature(factory).parameters
    default = {"split": "test"} if has_splits else {}
    return {**config.env.kwargs, **default, **config.evaluation.kwargs}


def make_environments(config: Config) -> tuple[TextEnv[Any], TextEnv[Any]]:
    """Return the training and the held-out environment, both able to make a level.

    Raises:
        PettingLLMsError: There is no such environment, it refuses an argument or cannot make
            levels of this kind, or the configuration names a role or scripted policy it lacks.
    """
    env = pettingllms.make(config.env.id, checks=False, **config.env.kwargs)
    held_out = pettingllms.make(config.env.id, checks=False, **held_out_kwargs(config))
    _check_apart(config, env, held_out)
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
    for one in (env, held_out):
        one.reset(seed=0)
    return env, held_out


def _check_apart(config: Config, env: TextEnv[Any], held_out: TextEnv[Any]) -> None:
    """Refuse what would train on held-out levels or without what an agent must know."""
    factory = pettingllms.spec(config.env.id).load()
    parameter = inspect.signature(factory).parameters.get("split")
    if parameter is not None:
        split = config.env.kwargs.get("split", parameter.default)
        if split == held_out_kwargs(config)["split"]:
            raise ConfigError(
                f"training and evaluation both use split = {split!r}; name another one in "
                "[env.kwargs] or [evaluation.kwargs]"
            )
    if {env.observation_mode, held_out.observation_mode} != {"full"}:
        raise ConfigError(
            'observation_mode = "delta" cannot be trained: every decision is one prompt, without '
            'the chat before it; use observation_mode = "full"'
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


def _check_scripted(key: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{key} names the scripted policy {name!r}{suggestion(name, known)}; the "
                f"environment has: {', '.join(known) or 'none'}"
            )
