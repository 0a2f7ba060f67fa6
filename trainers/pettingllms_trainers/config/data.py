"""The tables of a run file as plain data, and what is looked up in them. No rule across sections.

Legend: a role is `ROLE`, or `ENV.ROLE` in a run of several environments.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializationInfo,
    WrapSerializer,
)

from pettingllms_trainers.config.algorithm import DEFAULT, Algorithm, algorithm_of
from pettingllms_trainers.config.sections import (
    COSMETIC,
    PROLONGING,
    CheckpointConfig,
    CountsWith,
    DeepSpeedConfig,
    EngineConfig,
    EnvConfig,
    EvaluationConfig,
    FsdpConfig,
    LoggingConfig,
    LossConfig,
    OptimizerConfig,
    PhaseConfig,
    PolicyConfig,
    RayConfig,
    RewardConfig,
    RolloutConfig,
    Section,
    UpdatesConfig,
    WarmStartConfig,
    entry_of,
    env_list,
    flat_roles,
    is_named,
)


def _table_or_list(value: Any, dump: Callable[[Any], list[Any]]) -> Any:
    """One environment as the table that it was, several as a list."""
    found = dump(value)
    return found[0] if len(found) == 1 else found


def _named(algorithm: Algorithm, info: SerializationInfo) -> dict[str, Any]:
    """An algorithm as the table that it was; its name is never left out as a default."""
    table = algorithm.model_dump(
        mode=info.mode, exclude_defaults=info.exclude_defaults, exclude_none=info.exclude_none
    )
    return {"name": algorithm.name, **table}


class ConfigData(Section):
    """Every key of a run; `Config` is the same, settled and checked."""

    env: Annotated[
        tuple[EnvConfig, ...],
        BeforeValidator(env_list),
        WrapSerializer(_table_or_list),
    ]
    """What is played: one table [env], or several tables [[env]]."""
    policies: dict[str, PolicyConfig]
    """Policies by name; see `models` for those that have weights."""
    rewards: dict[str, RewardConfig] = Field(default={})
    """What answers earn in training beside the environment's rewards, by name."""
    roles: Annotated[dict[str, str], BeforeValidator(flat_roles)]
    """Role to policy name; roles that name one policy share its weights. With several environments
    ROLE is that role in all of them, ENV.ROLE in one, which comes before ROLE."""
    sources: Annotated[tuple[str, ...], COSMETIC] = ()
    """Run files that this was read from, in their order; the trainer fills it in."""
    output_dir: Annotated[str, COSMETIC] = "runs/run"
    """Directory of everything the run writes; must be new or empty, unless it is resumed."""
    seed: int = Field(default=0, ge=0)
    """Seed of everything that is drawn."""
    num_steps: Annotated[int, PROLONGING] = Field(default=150, ge=0)
    """Train steps."""
    device: Annotated[str, COSMETIC] = "auto"
    """Torch device of the policies; auto: the first GPU, else the CPU."""
    num_threads: Annotated[int, COSMETIC] = Field(default=0, ge=0)
    """CPU threads of torch; 0: torch's own choice."""
    stalled_after: Annotated[int, COSMETIC] = Field(default=3, ge=1)
    """Train steps in a row after which a warning says that a policy is not updated, or gives one
    answer to every prompt."""
    stop_when_stalled: Annotated[bool, COSMETIC] = False
    """Whether the run then stops, with a checkpoint and exit code 1."""
    algorithm: Annotated[Algorithm, BeforeValidator(algorithm_of), PlainSerializer(_named)] = Field(
        default={"name": DEFAULT}, validate_default=True
    )
    """How episodes are sampled, and who is compared with whom: a name, and its parameters."""
    rollout: RolloutConfig = RolloutConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    engine: EngineConfig = EngineConfig()
    updates: UpdatesConfig = UpdatesConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: Annotated[CheckpointConfig, COSMETIC] = CheckpointConfig()
    logging: Annotated[LoggingConfig, COSMETIC] = LoggingConfig()
    deepspeed: DeepSpeedConfig = DeepSpeedConfig()
    fsdp: FsdpConfig = FsdpConfig()
    ray: Annotated[RayConfig, CountsWith("ray.enabled"), COSMETIC] = RayConfig()

    def is_in(self, phase: PhaseConfig | None, role: str, policy: str | None = None) -> bool:
        """Whether a phase trains a role (of a policy, if one is given)."""
        name = self.policy_of(role)
        if name not in self.models or self.policies[name].frozen or policy not in (None, name):
            return False
        if phase is None:
            return True
        is_of_policy = not phase.policies or name in phase.policies
        return is_of_policy and (not phase.roles or is_named(phase.roles, role))

    def trains(self, role: str, step: int) -> bool:
        """Whether the samples of a role are trained on.

        Args:
            role: `ENV.ROLE` in a run of several environments.
            step: Train steps that come before, from 0.
        """
        phases = self.updates.phases
        return self.is_in(phases[self.updates.phase_at(step)] if phases else None, role)

    def updates_policy(self, name: str, step: int) -> bool:
        """Whether a policy is updated in a train step, from 0."""
        is_trained = name in self.models and not self.policies[name].frozen
        if not self.updates.phases:
            return is_trained
        return is_trained and any(self.trains(role, step) for role in self.roles_of(name))

    def roles_of(self, policy: str) -> list[str]:
        """The names by which the file may mean a role of a policy, in any environment."""
        return [role for role in self.role_names() if self.policy_of(role) == policy]

    def role_names(self) -> list[str]:
        """What may name a role elsewhere in the file."""
        plain = {role.rpartition(".")[2] for role in self.roles}
        scoped = itertools.product(self.env_names, plain) if len(self.env) > 1 else ()
        return sorted({*self.roles, *plain, *(f"{env}.{role}" for env, role in scoped)})

    @property
    def env_names(self) -> tuple[str, ...]:
        """Names of the environments; that of the only one is empty."""
        return tuple(env.label for env in self.env) if len(self.env) > 1 else ("",)

    def policy_of(self, role: str) -> str | None:
        """The name of a role's policy; None when it has none.

        Args:
            role: `ENV.ROLE` in a run of several environments.
        """
        return entry_of(self.roles, role)

    @property
    def models(self) -> dict[str, PolicyConfig]:
        """The policies that have weights, by name; the others are fixed."""
        return {name: policy for name, policy in self.policies.items() if policy.model}

    @property
    def judges(self) -> set[str]:
        """Policies that judge answers and play no role."""
        return {reward.judge for reward in self.rewards.values() if reward.judge}

    @property
    def resolved_loss(self) -> LossConfig:
        """The loss with `old_logprobs` chosen."""
        if self.loss.old_logprobs != "auto":
            return self.loss
        is_same = not self.engine.has_copy and not self.rollout.max_staleness
        choice = "engine" if is_same else "recompute"
        return self.loss.model_copy(update={"old_logprobs": choice})

    @property
    def is_sharded(self) -> bool:
        """Whether processes that train together hold parts of what an update needs."""
        return self.fsdp.enabled or self.deepspeed.stage > 0

    @property
    def shards_weights(self) -> bool:
        """Whether these are parts of the weights, too."""
        return self.fsdp.enabled or self.deepspeed.stage == 3

    @property
    def is_continuous(self) -> bool:
        """Whether an episode goes on as soon as its own completions are there.

        Workers of Ray answer a call at a time.
        """
        return self.engine.can.takes_requests and not self.ray.enabled

    def num_env_workers(self, num_players: int) -> int:
        """How many environments the run can step at the same time.

        Args:
            num_players: Processes that play levels; one with Ray, which gives it workers.
        """
        num_processes = num_players * max(self.ray.num_env_workers * self.ray.enabled, 1)
        return num_processes * max(self.rollout.env_threads, 1)

    @property
    def plays_beside_updates(self) -> bool:
        """Whether engines can generate while policies learn, with rollouts of later train steps.

        Not where the model that learns generates, or evaluates V for the rollouts.
        """
        has_engines = self.engine.has_copy and self.algorithm.critic is None
        return self.rollout.max_staleness > 0 and has_engines

    @property
    def swaps_within_answers(self) -> bool:
        """Whether engines get new weights while they write, instead of between two answers.

        Not adapters, which are replaced by name.
        """
        has_adapters = any(policy.has_adapter for policy in self.models.values())
        return self.plays_beside_updates and self.is_continuous and not has_adapters
