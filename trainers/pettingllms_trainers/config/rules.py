"""All rules across sections, in the order in which they are asked, and advice that is none.

A rule is a function of the tables that raises `ValueError` for the first two keys that exclude each
other, and says what to change. Sections check by themselves what concerns them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pettingllms.errors import suggestion
from pettingllms.sources import WORKFLOW_PREFIX
from pettingllms_trainers.config.data import ConfigData
from pettingllms_trainers.config.sections import (
    TINY,
    CountsWith,
    Section,
    base_groups,
    base_of_adapter,
    check_kind,
    check_name,
    check_names,
    check_reward,
    keys_of,
    reads_prompts,
)


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
    # Its weights would take memory for nothing; most often a role is misspelt.
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
                f"rewards.{name}.judge = {reward.judge!r} is not a fixed policy that reads "
                f'prompts; add [policies.{reward.judge}] with fixed = "openai:MODEL@URL" or '
                '"hf:PATH"'
            )
        # A judge that also plays would be trained to please itself.
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
    # Without train steps a run is an evaluation, which needs no weights that learn.
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
        # A misspelt role would change nothing, and nobody would notice.
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
                        f"{place} names {name!r}, which is not a {kind}{more}"
                        f"{suggestion(name, known)}; there are: {', '.join(known)}"
                    )
        # A phase in which nothing learns would pass as train steps without any update.
        for name in phase.policies or [None]:
            if not any(config.is_in(phase, role, name) for role in compared):
                what = f"nothing of {name}" if name else "nothing"
                raise ValueError(
                    f"{place} trains {what}: its roles are played by other policies, by frozen "
                    "or fixed ones, or are not compared (algorithm.branching_roles)"
                )
    # Phases decide alone who learns: what none of them names stays as it began.
    for name in trained if config.updates.phases else ():
        if not any(config.is_in(p, r, name) for p in config.updates.phases for r in names):
            raise ValueError(
                f"no phase of updates.phases trains the policy {name!r}: add it to one, or set "
                f"policies.{name}.frozen = true"
            )


def _check_envs_of_roles(config: ConfigData) -> None:
    labels = config.env_names
    # Only with several environments does a prefix say in which one a role is.
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


def _check_reward_scale(config: ConfigData) -> None:
    for env in config.env:
        if not env.reward_scale and not config.rewards:
            raise ValueError(
                f"reward_scale = 0 of {env.label} leaves nothing to learn from: add a table "
                "[rewards.NAME], or set it above 0"
            )
    # Rewards of judges are added to it, and then the factor decides what outweighs what.
    if config.algorithm.sees_size or config.rewards:
        return
    for env in config.env:
        if env.reward_scale != 1:
            raise ValueError(
                f"reward_scale = {env.reward_scale:g} of {env.label} would change nothing: "
                f"{config.algorithm.name} divides by the deviation of rewards. Set "
                'algorithm.norm = "none", or let weight give the environment more levels'
            )


def _check_role_gradients(config: ConfigData) -> None:
    if not config.optimizer.role_gradients:
        return
    # Cosines are of whole gradients: no process has one where they are sharded.
    if config.is_sharded:
        raise ValueError(
            "optimizer.role_gradients needs whole gradients on every process, and they are "
            "sharded: leave deepspeed.stage and fsdp.enabled out, or role_gradients"
        )
    if all(len(config.roles_of(name)) < 2 for name in config.models):
        raise ValueError(
            "optimizer.role_gradients compares roles that share a policy, and every policy "
            "plays one role: leave it out, or let roles name one policy"
        )


def _check_staleness(config: ConfigData) -> None:
    most = config.rollout.max_staleness
    if not most:
        return
    # Two claims on the same memory at the same time.
    if config.engine.sleeps:
        raise ValueError(
            f"rollout.max_staleness = {most} generates while policies learn, and "
            "engine.vllm.sleep = true takes the engines' memory away then; set one of them only"
        )
    # Recomputed ones are of the present weights: the ratio to those that drew is lost.
    if config.resolved_loss.old_logprobs == "recompute" and not config.loss.importance_cap:
        raise ValueError(
            f"rollout.max_staleness = {most} learns from tokens of older weights, which "
            "loss.importance_cap "
            '= 0 does not account for; set it above 0, or loss.old_logprobs = "engine"'
        )


def _check_lora(config: ConfigData) -> None:
    for name, policy in config.models.items():
        if policy.has_adapter and config.is_sharded:
            raise ValueError(
                f"policies.{name} trains a LoRA adapter, of which there is little to "
                "shard; leave deepspeed.stage and fsdp.enabled out"
            )
        if policy.lora.base_precision == "nf4" and not policy.has_adapter:
            raise ValueError(
                f'policies.{name}.lora.base_precision = "nf4" is for the frozen base of an '
                f"adapter, and {name} has none: set policies.{name}.lora.rank, or leave it out"
            )
        # What follows is about adapters that begin with this run.
        if not policy.lora.rank:
            continue
        if base_of_adapter(policy.model) is not None:
            raise ValueError(
                f"policies.{name}: {policy.model} holds a LoRA adapter, which is trained "
                f"further as it is; leave policies.{name}.lora out"
            )
        if policy.frozen:
            raise ValueError(
                f"policies.{name} is frozen: with a new LoRA adapter it would play like its "
                f"model; leave policies.{name}.lora out"
            )


def _check_base_precision(config: ConfigData) -> None:
    # Adapters share their base in memory, so that it has one precision.
    for group in base_groups(config.models):
        adapters = [name for name in group if config.policies[name].has_adapter]
        found = {config.policies[name].lora.base_precision: name for name in adapters}
        if len(found) > 1:
            raise ValueError(
                f"the adapters of {' and '.join(sorted(found.values()))} are on one base, which is "
                "stored once: give both the same lora.base_precision, or set it in "
                "[every_policy.lora]"
            )


def _check_state_bits(config: ConfigData) -> None:
    if config.optimizer.state_bits == 8 and config.is_sharded:
        raise ValueError(
            "optimizer.state_bits = 8 is for moments that every process holds in full, and they "
            "are sharded: leave it out, or deepspeed.stage and fsdp.enabled"
        )


def _check_shards(config: ConfigData) -> None:
    if config.fsdp.enabled and config.deepspeed.stage:
        raise ValueError(
            f"fsdp.enabled = true and deepspeed.stage = {config.deepspeed.stage} shard the same: "
            "leave one of them out"
        )


def _check_engine(config: ConfigData) -> None:
    for name, policy in config.models.items():
        # Addresses that nobody asks would be taken for servers in use.
        if bool(policy.endpoints) == config.engine.can.is_local:
            raise ValueError(
                f'policies.{name}.endpoints are needed with engine.kind = "vllm_server" and '
                f'only there; got engine.kind = "{config.engine.kind}" and '
                f"{len(policy.endpoints)} endpoints"
            )
    used: dict[str, tuple[str, object]] = {}
    # Weights are pushed to a server; with two models each push would undo the other's.
    for group in base_groups(config.models):
        for name in group:
            endpoints = config.policies[name].endpoints
            for url in endpoints:
                other, holders = used.setdefault(url, (name, (group, endpoints)))
                if holders != (group, endpoints):
                    raise ValueError(
                        f"the policies {other!r} and {name!r} name the same server {url}; a "
                        "server holds one model. Start one for each; policies with LoRA "
                        "adapters on one model share all their servers, or none"
                    )
    if config.engine.attention == "expanded" and config.optimizer.packing:
        raise ValueError('engine.attention = "expanded" needs optimizer.packing = false')


def _check_tensor_parallel(config: ConfigData) -> None:
    wanted, gpus = config.engine.num_shards, config.ray.gpus_per_worker
    # Without a GPU the parts of an engine compute on the cores of their worker.
    if config.ray.enabled and gpus and gpus != wanted and (gpus > 1 or wanted > 1):
        raise ValueError(
            f"ray.gpus_per_worker is {gpus:g} and engine.vllm.tensor_parallel_size {wanted}: a "
            "worker computes on one GPU, its engine on tensor_parallel_size; set both alike"
        )


def _check_value(config: ConfigData) -> None:
    if config.algorithm.critic is None:
        return
    for role, name in config.roles.items():
        # V is read from the hidden states of the policy that acts, as it learns.
        if name not in config.models or config.policies[name].frozen:
            raise ValueError(
                f"the algorithm {config.algorithm.name} needs a trained policy in every role: "
                f"{role!r} is played by {name!r}, which is fixed or frozen and has no V. Use "
                'algorithm.name = "continuation"'
            )
    if config.shards_weights:
        raise ValueError(
            f"the algorithm {config.algorithm.name} evaluates V during rollouts, which sharded "
            "weights cannot: use deepspeed.stage 0 to 2, without fsdp.enabled"
        )


def _check_compared(config: ConfigData) -> None:
    """Refuse policies that would never learn, since nothing of them is compared."""
    for name, policy in config.models.items():
        roles = config.roles_of(name)
        if not policy.frozen and not any(map(config.algorithm.compares, roles)):
            raise ValueError(
                f"the policy {name!r} would never be trained: {config.algorithm.name} compares "
                f"none of its roles ({', '.join(roles)}). Add one to algorithm.branching_roles "
                f"({', '.join(config.algorithm.named_roles)}), or set policies.{name}.frozen = true"
            )


def _check_target_kl(config: ConfigData) -> None:
    optimizer = config.optimizer
    # The limit is looked at between optimizer steps, so that one step is never stopped.
    has_one_step = not optimizer.completions_per_minibatch and optimizer.num_epochs == 1
    if config.loss.target_kl and has_one_step:
        raise ValueError(
            f"loss.target_kl = {config.loss.target_kl:g} would change nothing: it ends an update "
            "between two optimizer steps, and there is one. Set "
            "optimizer.completions_per_minibatch or a higher optimizer.num_epochs"
        )


def _check_branch_frozen(config: ConfigData) -> None:
    everybody_learns = all(config.is_in(None, role) for role in config.roles)
    if config.updates.branch_frozen and everybody_learns and not config.updates.phases:
        raise ValueError(
            "updates.branch_frozen = true would change nothing: all roles are trained in every "
            "train step. Add [[updates.phases]], or leave it out"
        )


def _check_idle(config: ConfigData) -> None:
    # "auto" leaves open whether there are ratios to weight.
    settled = config.model_copy(update={"loss": config.resolved_loss})
    for key in keys_of(settled):
        if key.is_default:
            continue
        for owner, path, mark in key.marks:
            if isinstance(mark, CountsWith) and not _holds(settled, owner, mark.condition):
                needed = " or ".join(
                    one if "." in one.partition(" = ")[0] else path + one
                    for one in mark.condition.split(" or ")
                )
                raise ValueError(
                    f"{key.path} = {key.value!r} would change nothing: it counts with {needed}. "
                    f"Set that, or leave {key.path} out"
                )


def _holds(config: ConfigData, owner: Section, condition: str) -> bool:
    for one in condition.split(" or "):
        name, _, wanted = one.partition(" = ")
        found: Any = config if "." in name else owner
        for part in name.split("."):
            found = getattr(found, part)
        is_set = any(found) if isinstance(found, tuple) else bool(found)
        if str(found) == wanted.strip('"') if wanted else is_set:
            return True
    return False


ABOUT_SECTIONS = (
    _check_branch_frozen,
    _check_idle,
    _check_reward_scale,
    _check_role_gradients,
    _check_staleness,
    _check_lora,
    _check_base_precision,
    _check_state_bits,
    _check_shards,
    _check_engine,
    _check_tensor_parallel,
    _check_value,
    _check_compared,
    _check_target_kl,
)


def start_advice(config: ConfigData) -> Iterator[str]:
    """Yield what will teach little or nothing, each with what to set instead."""
    for label, env in zip(config.env_names, config.env, strict=True):
        if config.algorithm.is_by_step and env.kwargs.get("reward") == "outcome":
            yield (
                f'reward = "outcome" of {label or env.id} pays at the end of an episode alone, and '
                f"{config.algorithm.name} compares candidates by the reward of their own step: "
                "decisions before the last teach next to nothing. Compare whole episodes by what "
                'followed: algorithm.name = "reinforce", or "auto"'
            )
    warmup = config.optimizer.num_warmup_steps
    if warmup >= config.num_steps > 0:
        yield (
            f"optimizer.num_warmup_steps = {warmup} is not over in the {config.num_steps} train "
            "steps of the run: no step has the whole learning rate. Lower it, or take more steps"
        )
    if config.algorithm.trusts_rewards:
        for what, how in _untested_rewards(config):
            yield (
                f"{config.algorithm.name} takes for granted that what is paid is in line with "
                f"how the episode ends, and nothing has tested that for {what}: where it is "
                f'not, success may fall. {how}; or take algorithm.name = "auto", which follows '
                "such rewards once it is shown that those who earn more are solved more often"
            )
    for name, policy in config.models.items():
        if policy.frozen and policy.model == TINY:
            yield (
                f'policies.{name} is frozen and has the model "{TINY}": it plays with random '
                "weights, and the warm start teaches it nothing. Remove frozen, name a trained "
                'model, or let a scripted policy play: fixed = "oracle"'
            )


def _untested_rewards(config: ConfigData) -> Iterator[tuple[str, str]]:
    """Yield what pays and was tested by nobody, and how to test it."""
    for label, env in zip(config.env_names, config.env, strict=True):
        # Announced environments are tested before; workflows have to ask for rewards of steps.
        is_unannounced = "." in env.id and not env.id.startswith(WORKFLOW_PREFIX)
        if is_unannounced and env.reward_scale and env.kwargs.get("reward") != "outcome":
            how = f"Look at the outcome alignment of `pettingllms check {env.id}`"
            yield f"the rewards of {label or env.id}", how
    for name, reward in config.rewards.items():
        if not reward.weights or any(reward.weights.values()):
            how = f"Watch judged/{name}/outcome_alignment, which should stay above 0.5"
            yield f"rewards.{name}", how


Rule = Callable[[ConfigData], None]

BEFORE_DEFAULTS: Sequence[Rule] = ABOUT_NAMES
"""What defaults rely on."""

AFTER_DEFAULTS: Sequence[Rule] = (*ABOUT_PHASES, *ABOUT_SECTIONS)
"""What is asked of the values that a run has in the end."""
