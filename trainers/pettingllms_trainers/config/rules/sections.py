"""Rules about what sections must agree on: engines, weights, credit and rollouts."""

from __future__ import annotations

from pettingllms_trainers.config.data import ConfigData
from pettingllms_trainers.config.policies import base_groups, base_of_adapter


def _check_reward_scale(config: ConfigData) -> None:
    for env in config.env:
        if not env.reward_scale and not config.rewards:
            raise ValueError(
                f"reward_scale = 0 of {env.label} leaves nothing to learn from: add a table "
                "[rewards.NAME], or set it above 0"
            )
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
    if config.engine.sleeps:
        raise ValueError(
            f"rollout.max_staleness = {most} generates while policies learn, and "
            "engine.vllm.sleep = true takes the engines' memory away then; set one of them only"
        )
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
        if bool(policy.endpoints) == config.engine.can.is_local:
            raise ValueError(
                f'policies.{name}.endpoints are needed with engine.kind = "vllm_server" and '
                f'only there; got engine.kind = "{config.engine.kind}" and '
                f"{len(policy.endpoints)} endpoints"
            )
    used: dict[str, tuple[str, object]] = {}
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
    has_one_step = not optimizer.completions_per_minibatch and optimizer.num_epochs == 1
    if config.loss.target_kl and has_one_step:
        raise ValueError(
            f"loss.target_kl = {config.loss.target_kl:g} would change nothing: it ends an update "
            "between two optimizer steps, and there is one. Set "
            "optimizer.completions_per_minibatch or a higher optimizer.num_epochs"
        )


def _check_spread_prompts(config: ConfigData) -> None:
    if config.optimizer.spread_prompts and not config.optimizer.completions_per_minibatch:
        raise ValueError(
            "optimizer.spread_prompts = true would change nothing: it spreads completions over "
            "optimizer steps, and optimizer.completions_per_minibatch = 0 takes one. Set that to a "
            "number, or leave spread_prompts out"
        )


ABOUT_SECTIONS = (
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
    _check_spread_prompts,
)
