"""Rules about who plays: environments, policies, roles, and the phases that train them."""

from __future__ import annotations

from pettingllms.errors import suggestion
from pettingllms_trainers.config.data import ConfigData
from pettingllms_trainers.config.env import check_names
from pettingllms_trainers.config.policies import check_kind, check_name, reads_prompts
from pettingllms_trainers.config.rewards import check_reward


def _check_env(config: ConfigData) -> None:
    check_names(config.env)


def _check_policies(config: ConfigData) -> None:
    for name, policy in config.policies.items():
        check_name(name)
        check_kind(name, policy)


def _check_roles(config: ConfigData) -> None:
    if not config.roles:
        raise ValueError('[roles] is empty; give every role a policy: planner = "NAME"')
    for role, policy in config.roles.items():
        if policy not in config.policies:
            raise ValueError(
                f"role {role!r} names the policy {policy!r}, which is not defined; policies: "
                f"{', '.join(config.policies) or 'none'}. Add a table [policies.{policy}]"
            )


def _check_unused(config: ConfigData) -> None:
    for name in config.policies:
        if name not in config.roles.values() and name not in config.judges:
            raise ValueError(
                f"policy {name!r} plays no role; name it in [roles] or remove [policies.{name}]"
            )


def _check_rewards(config: ConfigData) -> None:
    for name, reward in config.rewards.items():
        check_name(name)
        check_reward(name, reward)
        judge = config.policies.get(reward.judge)
        if reward.judge and (judge is None or not reads_prompts(judge)):
            raise ValueError(
                f"rewards.{name}.judge = {reward.judge!r} is no fixed policy that reads prompts; "
                f'add [policies.{reward.judge}] with fixed = "openai:MODEL@URL" or "hf:PATH"'
            )
        if reward.judge in config.roles.values():
            raise ValueError(
                f"the policy {reward.judge!r} judges answers for rewards.{name} and plays a role; "
                "give the judge a table of its own in [policies]"
            )


def _check_trained(config: ConfigData) -> None:
    if not config.models:
        raise ValueError(
            "no policy has a model, so there is nothing to train; fixed policies play each "
            "other with pettingllms eval"
        )
    if config.num_steps and all(policy.frozen for policy in config.models.values()):
        raise ValueError(
            "all policies with a model are frozen, so there is nothing to train; remove frozen "
            "= true of one, or set num_steps = 0 to evaluate them only"
        )


def _check_warm_start(config: ConfigData) -> None:
    start = config.warm_start
    if start.data and start.demonstrators:
        raise ValueError(
            f"warm_start has demonstrators and data = {start.data!r}, and can imitate one of the "
            "two; remove the other"
        )


def _check_named_roles(config: ConfigData) -> None:
    tables = {
        **{f"rewards.{name}.weights": one.weights for name, one in config.rewards.items()},
        "warm_start.demonstrators": config.warm_start.demonstrators
        if config.warm_start.num_steps
        else {},
        "rollout.per_role": config.rollout.per_role,
        "[algorithm]": dict.fromkeys(config.algorithm.named_roles),
    }
    for key, table in tables.items():
        for role in table:
            if role not in config.role_names():
                raise ValueError(
                    f"{key} names the role {role!r}, and [roles] has no such: "
                    f"{', '.join(config.roles)}. One of the two is misspelt"
                )


def _check_phases(config: ConfigData) -> None:
    names, trained = config.role_names(), [n for n, p in config.models.items() if not p.frozen]
    compared = [role for role in names if config.algorithm.compares(role)]
    for number, phase in enumerate(config.updates.phases, 1):
        place = f"phase {number} of updates.phases"
        for kind, given, known in (
            ("role", phase.roles, names),
            ("policy", phase.policies, trained),
        ):
            for name in given:
                if name not in known:
                    more = " that is trained" if kind == "policy" else ""
                    raise ValueError(
                        f"{place} names {name!r}, which is no {kind}{more}"
                        f"{suggestion(name, known)}; there are: {', '.join(known)}"
                    )
        for name in phase.policies or [None]:
            if not any(config.is_in(phase, role, name) for role in compared):
                what = f"nothing of {name}" if name else "nothing"
                raise ValueError(
                    f"{place} trains {what}: its roles are played by other policies, by frozen "
                    "or fixed ones, or are not compared (algorithm.branching_roles)"
                )
    for name in trained if config.updates.phases else ():
        if not any(config.is_in(p, r, name) for p in config.updates.phases for r in names):
            raise ValueError(
                f"no phase of updates.phases trains the policy {name!r}: add it to one, or set "
                f"policies.{name}.frozen = true"
            )


def _check_envs_of_roles(config: ConfigData) -> None:
    labels = config.env_names
    for role in config.roles if len(labels) > 1 else ():
        label, dot, _ = role.partition(".")
        if dot and label not in labels:
            raise ValueError(
                f"roles.{role} names the environment {label!r}{suggestion(label, labels)}; "
                f"environments: {', '.join(labels)}"
            )


ABOUT_NAMES = (
    _check_env,
    _check_policies,
    _check_roles,
    _check_rewards,
    _check_unused,
    _check_trained,
    _check_warm_start,
    _check_named_roles,
)
"""What has to hold before defaults can be settled."""

ABOUT_PHASES = (_check_phases, _check_envs_of_roles)
