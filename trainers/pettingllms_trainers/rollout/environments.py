"""The environments of a run, checked against its configuration. Needs no torch."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pettingllms
from pettingllms import TextEnv, role_of
from pettingllms.errors import PettingLLMsError, stated, suggestion
from pettingllms.evaluation.plan import begun
from pettingllms.registry import SOLVED_SHARE
from pettingllms.workflows import WorkflowEnv
from pettingllms_trainers.config import Config, EnvConfig
from pettingllms_trainers.config.sections import entry_of, qualified
from pettingllms_trainers.errors import ConfigError


class RunEnvironment(NamedTuple):
    """One environment of a run, as it is trained on and evaluated."""

    name: str
    """Its name among several; empty in a run of one."""
    config: EnvConfig
    """Its table of the run file."""
    training: tuple[TextEnv[Any], ...]
    """One per stage of the curriculum, in order; without a curriculum one."""
    held_out: TextEnv[Any]
    """Held-out levels, for evaluation."""
    roles: Mapping[str, str]
    """Role, as the environment has it, to the name of its policy."""

    def role(self, agent: str) -> str:
        """What the run calls the role of an agent."""
        return qualified(self.name, role_of(agent))


def held_out_kwargs(config: Config, env: EnvConfig) -> dict[str, Any]:
    """The arguments of a held-out environment: `split="test"` unless another is named.

    All of a source of its own is held out. An environment without splits gets no split. Whole
    levels are played, also where training begins part of the way along their solutions.
    """
    factory = pettingllms.spec(env.id).load()
    has_splits = "split" in inspect.signature(factory).parameters
    own = {**config.evaluation.kwargs, **env.evaluation.kwargs}
    default = {"split": "all" if "source" in own else "test"} if has_splits else {}
    kwargs = {name: value for name, value in env.kwargs.items() if name != SOLVED_SHARE}
    return {**kwargs, **default, **own}


def scripted_of(config: Config, env: EnvConfig) -> tuple[str, ...]:
    """The scripted policies that play the held-out levels of an environment."""
    own = env.evaluation.scripted
    return config.evaluation.scripted if own is None else own


def make_environments(config: Config) -> tuple[RunEnvironment, ...]:
    """The environments of a run in the order of its file, all able to make a level.

    Raises:
        PettingLLMsError: There is no such environment, it refuses an argument or cannot make
            levels of this kind, stages have different agents, or the configuration names a role
            or scripted policy that no environment has.
    """
    found = tuple(
        _make(config, env, name) for env, name in zip(config.env, config.env_names, strict=True)
    )
    _check_roles(config, found)
    for env in found:
        _check_scripted_policies(config, env)
    return found


def played_by(environments: Sequence[RunEnvironment]) -> dict[str, list[TextEnv[Any]]]:
    """Policy -> the training environments in which it plays a role."""
    found: dict[str, list[TextEnv[Any]]] = {}
    for env in environments:
        for policy in dict.fromkeys(env.roles.values()):
            found.setdefault(policy, []).append(env.training[0])
    return found


def _make(config: Config, env: EnvConfig, name: str) -> RunEnvironment:
    place = f"env.{name}" if name else "env"
    training = tuple(_make_stage(env, index, place) for index in range(len(env.stage_kwargs)))
    try:
        held_out = pettingllms.make(env.id, checks=False, **held_out_kwargs(config, env))
        if held_out.solved_share:
            raise ConfigError(
                f"{place}: an evaluation plays whole levels; leave {SOLVED_SHARE} out of "
                "[evaluation.kwargs], and set it in [env.kwargs] or [[env.curriculum]]"
            )
        _check_apart(config, env, [*training, held_out])
        _check_agents(env, training, place)
        _check_credit(config, env.id, training[0])
        _check_value(config, env.id, held_out)
        _try(env.id, held_out)
    except PettingLLMsError as error:
        if not name or isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{place}, for evaluation: {error}") from error
    plain = dict.fromkeys(map(role_of, training[0].possible_agents))
    roles = {role: config.policy_of(qualified(name, role)) for role in plain}
    return RunEnvironment(
        name, env, training, held_out, {role: policy or "" for role, policy in roles.items()}
    )


def _make_stage(env: EnvConfig, index: int, place: str) -> TextEnv[Any]:
    """The environment of a stage, which has made a level."""
    try:
        made = pettingllms.make(env.id, checks=False, **env.stage_kwargs[index])
        _try(env.id, made)
    except PettingLLMsError as error:
        if env.curriculum:
            raise ConfigError(f"stage {index + 1} of {place}.curriculum: {error}") from error
        if place != "env":
            raise ConfigError(f"{place}: {error}") from error
        raise
    return made


def _try(id: str, env: TextEnv[Any]) -> None:
    """Make a level and take a step there, before anything is spent on what cannot be played."""
    level = begun(env, 0)
    # What an empty answer does to somebody's workflow is the workflow's, as in any episode.
    if not isinstance(env, WorkflowEnv):
        with stated(ConfigError, f"{id} cannot read an empty answer"):
            level.step("")


def _check_apart(config: Config, env: EnvConfig, environments: Sequence[TextEnv[Any]]) -> None:
    """Refuse what would train on held-out levels or without what an agent must know."""
    factory = pettingllms.spec(env.id).load()
    parameters = inspect.signature(factory).parameters
    defaults = {
        name: parameters[name].default for name in ("split", "source") if name in parameters
    }
    if "split" in defaults:
        held_out = {**defaults, **held_out_kwargs(config, env)}
        for kwargs in env.stage_kwargs:
            training = {**defaults, **kwargs}
            if held_out.get("source") != training.get("source"):
                continue
            split = training["split"]
            shared = held_out["split"] if split in ("all", None) else split
            if held_out["split"] in (shared, "all", None):
                raise ConfigError(
                    f"training and evaluation of {env.id} both use split = {shared!r}; name "
                    "another one in [env.kwargs], [[env.curriculum]] or [evaluation.kwargs]"
                )
    if {made.observation_mode for made in environments} != {"full"}:
        raise ConfigError(
            'observation_mode = "delta" cannot be trained: every decision is one prompt, without '
            'the chat before it; use observation_mode = "full"'
        )


def _check_agents(env: EnvConfig, training: Sequence[TextEnv[Any]], place: str) -> None:
    first = training[0].possible_agents
    for number, made in enumerate(training, 1):
        if made.possible_agents != first:
            raise ConfigError(
                f"stage {number} of {place}.curriculum has the agents "
                f"{', '.join(made.possible_agents)}, and stage 1 has {', '.join(first)}; all "
                f"stages of {env.id} must have the same team"
            )


def _check_roles(config: Config, environments: Sequence[RunEnvironment]) -> None:
    """Refuse roles without a policy, and entries of [roles] that no environment uses."""
    names = {
        qualified(env.name, role): env.roles[role] for env in environments for role in env.roles
    }
    used = {role if role in config.roles else role.partition(".")[2] for role in names}
    problems = [f"the role {role!r} has no policy" for role, policy in names.items() if not policy]
    problems += [
        f"{role!r} is a role of none of the environments"
        if len(environments) > 1
        else f"{role!r} is not a role of this environment"
        for role in config.roles
        if role not in used
    ]
    known = {*names, *(role for env in environments for role in env.roles)}
    rollout, warm_start = config.rollout, config.warm_start
    tables: dict[str, Iterable[str]] = {
        "rollout.per_role": rollout.per_role,
        "[algorithm]": config.algorithm.named_roles,
        "updates.phases": [role for phase in config.updates.phases for role in phase.roles],
        "warm_start.demonstrators": warm_start.demonstrators if warm_start.num_steps else (),
        **{f"rewards.{name}.weights": one.weights for name, one in config.rewards.items()},
    }
    problems += [
        f"{key} names {role!r}, which is not a role"
        for key, table in tables.items()
        for role in table
        if role not in known
    ]
    if problems:
        what = " and ".join(dict.fromkeys(env.config.id for env in environments))
        first = next(iter(names))
        raise ConfigError(
            f"[roles]: {'; '.join(problems)}. Roles of {what} with these arguments: "
            f"{', '.join(names)}; give each one a line such as "
            f'{first} = "{next(iter(config.policies))}"'
        )


def _check_credit(config: Config, env_id: str, env: TextEnv[Any]) -> None:
    """Refuse to compare calls of a workflow by rewards that it does not have."""
    if not isinstance(env, WorkflowEnv) or env.has_step_rewards:
        return
    is_one_call = env.max_turns * len(env.possible_agents) == 1
    if config.algorithm.is_by_step and not is_one_call:
        raise ConfigError(
            f"the algorithm {config.algorithm.name} compares answers by rewards of their own, and "
            f"{env_id} has a reward for its outcome only. Use algorithm.name = "
            '"reinforce" or "auto"; or let the workflow report rewards '
            "with client.reward, and set step_rewards=True"
        )


def _check_value(config: Config, env_id: str, env: TextEnv[Any]) -> None:
    """Refuse V where agents act at the same time: the next prompt shows no answer of the stage."""
    if config.algorithm.critic is None:
        return
    for agents in env.stages:
        if len(agents) > 1:
            raise ConfigError(
                f"the algorithm {config.algorithm.name} reads V at the prompt of the agent that "
                f"acts next, and in {env_id} {', '.join(agents)} act at the same time: their "
                "prompts do not show what the others have just answered. Use algorithm.name = "
                '"continuation" or "reinforce"'
            )


def _check_scripted_policies(config: Config, env: RunEnvironment) -> None:
    known = env.training[0].scripted_policies
    place = "evaluation"
    if env.config.evaluation.scripted is not None:
        place = f"env.{env.name}.evaluation" if env.name else "env.evaluation"
    _check_scripted(f"{place}.scripted", scripted_of(config, env.config), known, env)
    if not config.warm_start.num_steps or config.warm_start.data:
        return
    for role in env.roles:
        names = entry_of(config.warm_start.demonstrators, qualified(env.name, role))
        if names is None:
            raise ConfigError(
                f"warm_start.demonstrators has no line for the role {qualified(env.name, role)!r}; "
                f"name a scripted policy of {env.config.id} for every role: {', '.join(known)}; or "
                "a file of answers (warm_start.data)"
            )
        _check_scripted(f"warm_start.demonstrators.{role}", list(names), known, env)


def _check_scripted(
    key: str, names: Sequence[str], known: Sequence[str], env: RunEnvironment
) -> None:
    which = f"The environment {env.name}" if env.name else "The environment"
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{key} names the scripted policy {name!r}{suggestion(name, known) or '.'} "
                f"{which} has: {', '.join(known) or 'none'}"
            )
