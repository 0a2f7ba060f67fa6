"""The configuration of a run, with the rules that span its sections."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from pettingllms_trainers.config.algorithm import (
    AdvantageConfig,
    LossConfig,
    OptimizerConfig,
    RolloutConfig,
    ValueConfig,
)
from pettingllms_trainers.config.defaults import learning_rates, settled, warm_start_rates
from pettingllms_trainers.config.distributed import DeepSpeedConfig, RayConfig
from pettingllms_trainers.config.engine import EngineConfig
from pettingllms_trainers.config.policies import (
    PolicyConfig,
    base_groups,
    base_of_adapter,
    check_kind,
    check_name,
)
from pettingllms_trainers.config.renamed import first_default, first_name
from pettingllms_trainers.config.run import (
    CheckpointConfig,
    EnvConfig,
    EvaluationConfig,
    LoggingConfig,
    WarmStartConfig,
)
from pettingllms_trainers.config.section import Section

__all__ = ["Config", "config_hash", "decides_results", "flat_table"]


class Config(Section):
    """AT-GRPO training of a team of agents on one environment."""

    env: EnvConfig
    policies: dict[str, PolicyConfig]
    """Policies by name; see `models` for those that have weights."""
    roles: dict[str, str]
    """Role to policy name; roles that name one policy share its weights."""
    output_dir: str = "runs/run"
    """Directory of everything the run writes; must be new or empty, unless it is resumed."""
    seed: int = Field(default=0, ge=0)
    """Seed of everything that is drawn."""
    num_steps: int = Field(default=150, ge=0)
    """Train steps."""
    device: str = "auto"
    """Torch device of the policies; auto: the first GPU, else the CPU."""
    num_threads: int = Field(default=0, ge=0)
    """CPU threads of torch; 0: torch's own choice."""
    stuck_after: int = Field(default=3, ge=1)
    """Train steps in a row after which a warning says that a policy is not updated, or gives one
    answer to every prompt."""
    stop_when_stuck: bool = False
    """Whether the run then stops, with a checkpoint and exit code 1."""
    rollout: RolloutConfig = RolloutConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    value: ValueConfig = ValueConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    engine: EngineConfig = EngineConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()
    deepspeed: DeepSpeedConfig = DeepSpeedConfig()
    ray: RayConfig = RayConfig()

    @model_validator(mode="after")
    def _check_policies(self) -> Config:
        for name, policy in self.policies.items():
            check_name(name)
            check_kind(name, policy)
        return self

    @model_validator(mode="after")
    def _check_roles(self) -> Config:
        if not self.roles:
            raise ValueError('[roles] is empty; give every role a policy: planner = "NAME"')
        for role, policy in self.roles.items():
            if policy not in self.policies:
                raise ValueError(
                    f"role {role!r} names the policy {policy!r}, which is not defined; policies: "
                    f"{', '.join(self.policies) or 'none'}. Add a table [policies.{policy}]"
                )
        return self

    @model_validator(mode="after")
    def _check_unused(self) -> Config:
        for name in self.policies:
            if name not in self.roles.values():
                raise ValueError(
                    f"policy {name!r} plays no role; name it in [roles] or remove [policies.{name}]"
                )
        return self

    @model_validator(mode="after")
    def _check_trained(self) -> Config:
        if not self.models:
            raise ValueError(
                "no policy has a model, so there is nothing to train; fixed policies play each "
                "other with pettingllms eval"
            )
        if self.num_steps and all(policy.frozen for policy in self.models.values()):
            raise ValueError(
                "all policies with a model are frozen, so there is nothing to train; remove frozen "
                "= true of one, or set num_steps = 0 to evaluate them only"
            )
        return self

    @model_validator(mode="after")
    def _check_named_roles(self) -> Config:
        tables = {
            "warm_start.demonstrators": self.warm_start.demonstrators
            if self.warm_start.num_steps
            else {},
            "rollout.per_role": self.rollout.per_role,
            "rollout.branching_roles": dict.fromkeys(self.rollout.branching_roles),
        }
        for key, table in tables.items():
            for role in table:
                if role not in self.roles:
                    raise ValueError(
                        f"{key} names the role {role!r}; roles: {', '.join(self.roles)}"
                    )
        return self

    @model_validator(mode="after")
    def _settle_defaults(self) -> Config:
        if self.models:
            self.__dict__.update(settled(self))
        return self

    @property
    def models(self) -> dict[str, PolicyConfig]:
        """The policies that have weights, by name; the others are fixed."""
        return {name: policy for name, policy in self.policies.items() if policy.model}

    @property
    def resolved_loss(self) -> LossConfig:
        """The loss with `old_logprobs` chosen."""
        if self.loss.old_logprobs != "auto":
            return self.loss
        is_same = self.engine.kind == "transformers" and not self.rollout.ahead
        choice = "engine" if is_same else "recompute"
        return self.loss.model_copy(update={"old_logprobs": choice})

    @property
    def plays_beside_updates(self) -> bool:
        """Whether engines can generate while policies learn, with rollouts that are played ahead.

        Not where the model that learns generates, or evaluates V for the rollouts; nor with Ray,
        whose workers do one thing at a time.
        """
        has_engines = self.engine.kind != "transformers" and self.advantage.credit != "value"
        return bool(self.rollout.ahead) and has_engines and not self.ray.enabled

    @model_validator(mode="after")
    def _check_ahead(self) -> Config:
        if not self.rollout.ahead:
            return self
        if self.engine.kind == "vllm" and self.engine.vllm.sleep:
            raise ValueError(
                "rollout.ahead = 1 generates while policies learn, and engine.vllm.sleep = true "
                "takes the engines' memory away then; set one of them only"
            )
        if self.resolved_loss.old_logprobs == "recompute" and not self.loss.importance_cap:
            raise ValueError(
                "rollout.ahead = 1 learns from tokens of older weights, which loss.importance_cap "
                '= 0 does not account for; set it above 0, or loss.old_logprobs = "engine"'
            )
        return self

    @model_validator(mode="after")
    def _check_lora(self) -> Config:
        for name, policy in self.models.items():
            if policy.has_adapter and self.deepspeed.stage:
                raise ValueError(
                    f"policies.{name} trains a LoRA adapter, of which there is little to "
                    "shard; leave deepspeed.stage out"
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
        return self

    @model_validator(mode="after")
    def _check_engine(self) -> Config:
        for name, policy in self.models.items():
            if bool(policy.endpoints) != (self.engine.kind == "vllm_server"):
                raise ValueError(
                    f'policies.{name}.endpoints are needed with engine.kind = "vllm_server" and '
                    f'only there; got engine.kind = "{self.engine.kind}" and '
                    f"{len(policy.endpoints)} endpoints"
                )
        used: dict[str, tuple[str, object]] = {}
        for group in base_groups(self.models):
            for name in group:
                endpoints = self.policies[name].endpoints
                for url in endpoints:
                    other, holders = used.setdefault(url, (name, (group, endpoints)))
                    if holders != (group, endpoints):
                        raise ValueError(
                            f"the policies {other!r} and {name!r} name the same server {url}; a "
                            "server holds one model. Start one for each; policies with LoRA "
                            "adapters on one model share all their servers, or none"
                        )
        if self.engine.attention == "expanded" and self.optimizer.packing:
            raise ValueError('engine.attention = "expanded" needs optimizer.packing = false')
        return self

    @model_validator(mode="after")
    def _check_continuous(self) -> Config:
        if self.rollout.continuous and (self.engine.kind == "transformers" or self.ray.enabled):
            who = "workers of Ray answer" if self.ray.enabled else "the engine transformers answers"
            raise ValueError(
                "rollout.continuous = true needs an engine that takes requests while it computes, "
                f'and {who} a batch at a time; use engine.kind = "vllm" or "vllm_server", '
                "without Ray, or leave the key out"
            )
        return self

    @model_validator(mode="after")
    def _check_tensor_parallel(self) -> Config:
        size, gpus = self.engine.vllm.tensor_parallel_size, self.ray.gpus_per_worker
        wanted = size if self.engine.kind == "vllm" else 1
        # Without a GPU the parts of an engine compute on the cores of their worker.
        if self.ray.enabled and gpus and gpus != wanted and (gpus > 1 or wanted > 1):
            raise ValueError(
                f"ray.gpus_per_worker is {gpus:g} and engine.vllm.tensor_parallel_size {wanted}: a "
                "worker computes on one GPU, its engine on tensor_parallel_size; set both alike"
            )
        return self

    @model_validator(mode="after")
    def _check_value(self) -> Config:
        if self.advantage.credit != "value":
            return self
        for role, name in self.roles.items():
            if name not in self.models or self.policies[name].frozen:
                raise ValueError(
                    f'advantage.credit = "value" needs a trained policy in every role: {role!r} is '
                    f"played by {name!r}, which is fixed or frozen and has no V. Use "
                    'advantage.credit = "continuation"'
                )
        if self.deepspeed.stage == 3:
            raise ValueError(
                'advantage.credit = "value" evaluates policies during rollouts, which sharded '
                "weights cannot: use deepspeed.stage 0 to 2"
            )
        return self

    @model_validator(mode="after")
    def _check_advantage(self) -> Config:
        advantage, mode = self.advantage, self.rollout.mode
        credits = {"tree": ("step", "value", "continuation")}.get(
            mode, ("step", "return_to_go", "episode")
        )
        if advantage.credit not in credits:
            other = "parallel" if mode == "tree" else "tree"
            raise ValueError(
                f'advantage.credit = "{advantage.credit}" needs rollout.mode = "{other}"; with '
                f'"{mode}" there are {", ".join(credits)}: candidates that a tree does not follow '
                "have no return, and whole episodes have nothing to compare V or continuations with"
            )
        branchings = self.rollout.num_branchings or self.rollout.branching_roles
        if mode == "parallel" and branchings:
            raise ValueError(
                'rollout.num_branchings and rollout.branching_roles need rollout.mode = "tree"'
            )
        needs = {"at_grpo": "tree", "agent_turn": "parallel", "trajectory": "parallel"}
        if needs.get(advantage.grouping, mode) != mode:
            raise ValueError(
                f'advantage.grouping = "{advantage.grouping}" needs rollout.mode = '
                f'"{needs[advantage.grouping]}"'
            )
        if advantage.grouping == "trajectory" and advantage.credit != "episode":
            raise ValueError('advantage.grouping = "trajectory" needs advantage.credit = "episode"')
        return self


_PROLONGING = ("num_steps", "evaluation.every", "checkpoint.")
_RESULTLESS = (
    *_PROLONGING,
    "stuck_after",
    "stop_when_stuck",
    "output_dir",
    "logging.",
    "ray.",
    "rollout.continuous",
    "optimizer.tokens_per_microbatch",
    "optimizer.gradient_checkpointing",
    "optimizer.packed_attention",
    "engine.tokens_per_batch",
    "engine.vllm.gpu_memory_utilization",
    "engine.vllm.kv_cache_bytes",
    "engine.vllm.max_num_seqs",
    "engine.vllm.enforce_eager",
    "engine.vllm.sleep",
    "engine.vllm.tensor_parallel_size",
)


def decides_results(key: str) -> bool:
    """Return whether a run with another value of a key is another run, by more than rounding.

    Where a run writes, what it shows, on which machines it computes and how it fits into their
    memory may differ when it is resumed. So may its number of train steps and how often it is
    evaluated and saved: what is done stays as it is.

    Args:
        key: Such as ``optimizer.learning_rate``.
    """
    return not key.startswith(_RESULTLESS)


def config_hash(config: Config) -> str:
    """Return 16 hexadecimal digits of all that decides a run's results.

    Keys with their default values are left out, so that a version with more keys than the one that
    wrote a checkpoint can resume from it. Of keys whose default has changed that is the first one.
    """
    given = flat_table(config.model_dump(mode="json", exclude_defaults=True))
    if not config.optimizer.learning_rate:
        given["optimizer.learning_rate"] = learning_rates(config)
    if config.warm_start.num_steps and not config.warm_start.learning_rate:
        given["warm_start.learning_rate"] = warm_start_rates(config)
    given = {key: value for key, value in given.items() if first_default(key) != value}
    data = {first_name(key): value for key, value in given.items() if decides_results(key)}
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def flat_table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            flat.update(flat_table(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat
