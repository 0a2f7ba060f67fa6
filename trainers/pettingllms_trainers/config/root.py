"""The run file as a whole: its keys, rules across sections, defaults; what makes two runs the same.

A role is `ROLE`, or `ENV.ROLE` in a run of several environments. Defaults that follow what is
trained are settled once, when a configuration is complete. A rule is a function that raises
`ValueError` for the first two keys that exclude each other, and says what to change. Sections check
by themselves what concerns them alone.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializationInfo,
    WrapSerializer,
    model_validator,
)

from pettingllms.errors import suggestion
from pettingllms.sources import WORKFLOW_PREFIX
from pettingllms.types import flat_table
from pettingllms_trainers.config.algorithm import DEFAULT, Algorithm, algorithm_of
from pettingllms_trainers.config.sections import (
    COSMETIC,
    PROLONGING,
    TINY,
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
    base_groups,
    base_of_adapter,
    entry_of,
    env_list,
    flat_roles,
    is_named,
    keys_of,
    qualified,
    reads_prompts,
)

Kind = Literal["full", "adapter", "tiny"]

# Full weights: as in the paper. An adapter starts at nothing and has few weights: ten times that of
# full weights (Schulman et al. 2025, "LoRA Without Regret"). Random weights have nothing to lose:
# measured with the embedded default.
_LEARNING_RATES: Mapping[Kind, float] = {"full": 1e-6, "adapter": 1e-5, "tiny": 1e-3}
# Usual for supervised training. At 1e-3 six steps took the perplexity of a plain sentence under
# SmolLM2-135M from 32 to 130.
_WARM_START_RATES: Mapping[Kind, float] = {"full": 1e-5, "adapter": 2e-4, "tiny": 3e-3}
# An answer in one token per character, an answer with some words around it or a short program, and
# the length of the paper.
_COMPLETION_TOKENS = {"tiny": 64, "plain": 512, "thinking": 4096}
# A tiny model keeps kilobytes per token for the backward pass; of a pretrained one, which keeps
# megabytes, the device decides (`backends.device.for_device`).
_TINY_MICROBATCH_TOKENS = 16384
THINKING_TOKENS = 1024
"""Completions shorter than this end while a model still thinks."""


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


class Config(Section):
    """Training of teams of agents on one environment or several: every key of a run."""

    env: Annotated[
        tuple[EnvConfig, ...],
        BeforeValidator(env_list),
        WrapSerializer(_table_or_list),
    ]
    """What is played: one table [env], or several tables [[env]]."""
    policies: dict[str, PolicyConfig]
    """Policies by name; see `models` for those that have weights."""
    rewards: dict[str, RewardConfig] = Field(default={})
    """Rewards of answers in training besides the environment's, by name."""
    roles: Annotated[dict[str, str], BeforeValidator(flat_roles)]
    """Role to policy name; roles that name one policy share its weights. With several environments,
    ROLE assigns that role in all of them, and ENV.ROLE in one; ENV.ROLE takes precedence."""
    sources: Annotated[tuple[str, ...], COSMETIC] = ()
    """Run files that this was read from, in order; filled in by the trainer."""
    output_dir: Annotated[str, COSMETIC] = "runs/run"
    """Directory of everything that the run writes; must be new or empty, unless the run is
    resumed."""
    seed: int = Field(default=0, ge=0)
    """Seed of all random draws."""
    num_steps: Annotated[int, PROLONGING] = Field(default=150, ge=0)
    """Train steps."""
    device: Annotated[str, COSMETIC] = "auto"
    """Torch device of the policies; auto: the first GPU, else the CPU."""
    num_threads: Annotated[int, COSMETIC] = Field(default=0, ge=0, le=1024)
    """CPU threads of torch; 0: torch's own choice."""
    stalled_after: Annotated[int, COSMETIC] = Field(default=3, ge=1)
    """Train steps in a row after which a warning says that a policy is not updated, or gives one
    answer to every prompt."""
    stop_when_stalled: Annotated[bool, COSMETIC] = False
    """Whether the run then stops, with a checkpoint and exit code 1."""
    algorithm: Annotated[Algorithm, BeforeValidator(algorithm_of), PlainSerializer(_named)] = Field(
        default={"name": DEFAULT}, validate_default=True
    )
    """How episodes are sampled and which candidates are compared: a name, and its parameters."""
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

    @model_validator(mode="after")
    def _settle_and_check(self) -> Config:
        for rule in _BEFORE_DEFAULTS:
            rule(self)
        # The model is frozen for everybody else; what it is made of is complete after this.
        vars(self).update(settled(self))
        for rule in _AFTER_DEFAULTS:
            rule(self)
        return self

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


def settled(config: Config) -> dict[str, Any]:
    """The sections of a configuration with every default that follows what is trained.

    A rate stays 0 where policies of several kinds learn: see `learning_rates`.
    """
    rollout, optimizer, start = config.rollout, config.optimizer, config.warm_start
    if not rollout.max_completion_tokens:
        tokens = max(_completion_tokens(policy) for policy in config.models.values())
        rollout = rollout.model_copy(update={"max_completion_tokens": tokens})
    changes: dict[str, Any] = {"learning_rate": _common(learning_rates(config))}
    is_tiny = all(policy.model == TINY for policy in config.models.values())
    if is_tiny and not optimizer.tokens_per_microbatch:
        changes["tokens_per_microbatch"] = _TINY_MICROBATCH_TOKENS
    # The shortest limit counts: a thought that is cut off is an answer that cannot be read.
    limits = {role: own.max_completion_tokens for role, own in rollout.per_role.items()}
    policies = dict(config.policies)
    for name, policy in config.models.items():
        if policy.chat_template_kwargs is None:
            roles = config.roles_of(name)
            room = min(entry_of(limits, role) or rollout.max_completion_tokens for role in roles)
            cannot_think = policy.model != TINY and room < THINKING_TOKENS
            kwargs = {"enable_thinking": False} if cannot_think else {}
            policies[name] = policy.model_copy(update={"chat_template_kwargs": kwargs})
    if start.num_steps:
        start = start.model_copy(update={"learning_rate": _common(warm_start_rates(config))})
    return {
        "policies": policies,
        "rollout": rollout,
        "optimizer": optimizer.model_copy(update=changes),
        "warm_start": start,
    }


def learning_rates(config: Config) -> dict[str, float]:
    """The maximum learning rate of every policy that is trained."""
    return _rates(config, config.optimizer.learning_rate, _LEARNING_RATES)


def warm_start_rates(config: Config) -> dict[str, float]:
    """The learning rate of the supervised steps of every policy that is trained."""
    return _rates(config, config.warm_start.learning_rate, _WARM_START_RATES)


def _rates(config: Config, given: float, defaults: Mapping[Kind, float]) -> dict[str, float]:
    return {
        name: given or defaults[_kind(policy)]
        for name, policy in config.models.items()
        if not policy.frozen
    }


def _kind(policy: PolicyConfig) -> Kind:
    # A tiny base is random: an adapter on it has as little to lose.
    if policy.model == TINY:
        return "tiny"
    return "adapter" if policy.has_adapter else "full"


def _completion_tokens(policy: PolicyConfig) -> int:
    if policy.model == TINY:
        return _COMPLETION_TOKENS["tiny"]
    thinks = (policy.chat_template_kwargs or {}).get("enable_thinking") is True
    return _COMPLETION_TOKENS["thinking" if thinks else "plain"]


def _common(rates: Mapping[str, float]) -> float:
    """The rate that all policies have; 0 where they differ, or there are none."""
    return min(rates.values()) if len(set(rates.values())) == 1 else 0.0


def deciding(config: Config, *, exclude_defaults: bool = False) -> dict[str, Any]:
    """The keys with whose values a run is another run, by more than rounding, with their values.

    Where a run writes, what it shows, on which machines it computes and how it fits into their
    memory may differ when it is resumed. So may its number of train steps and how often it is
    evaluated and saved: what is done stays as it is.
    """
    may_differ = {
        key.path
        for key in keys_of(config)
        if any(mark in (COSMETIC, PROLONGING) for *_, mark in key.marks)
    }
    # Flat, since keys are what is exempt.
    table = flat_table(config.model_dump(mode="json", exclude_defaults=exclude_defaults))
    return {key: value for key, value in table.items() if key not in may_differ}


def config_hash(config: Config) -> str:
    """16 hexadecimal digits of all that decides a run's results.

    Keys with their default values are left out, so that a version with more keys than the one that
    wrote a checkpoint can resume from it.
    """
    given = deciding(config, exclude_defaults=True)
    if not config.optimizer.learning_rate:
        given["optimizer.learning_rate"] = learning_rates(config)
    if config.warm_start.num_steps and not config.warm_start.learning_rate:
        given["warm_start.learning_rate"] = warm_start_rates(config)
    # Sorted, since files have any order.
    text = json.dumps(given, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def _check_env(config: Config) -> None:
    if len(config.env) == 1:
        for key in ("name", "weight"):
            if (value := getattr(config.env[0], key)) != EnvConfig.model_fields[key].default:
                raise ValueError(
                    f"env.{key} = {value!r} would change nothing: it is of a run of several "
                    "environments. Leave it out"
                )
        return
    for label, count in Counter(env.label for env in config.env).items():
        if count > 1:
            raise ValueError(
                f"{count} environments have the name {label!r}: give each one its own, such as "
                f'name = "{label}_2"'
            )
        if not re.fullmatch(r"\w+", label):
            raise ValueError(
                f"an environment has the name {label!r}; allowed are letters, digits and _, since "
                f"it is part of roles and metrics. Give it another: name = "
                f'"{re.sub(r"[^0-9A-Za-z]+", "_", label)}"'
            )


def _check_policies(config: Config) -> None:
    fields = PolicyConfig.model_fields
    for name, policy in config.policies.items():
        _check_name(name)
        if bool(policy.model) == bool(policy.fixed):
            raise ValueError(
                f"policies.{name} has model = {policy.model!r} and fixed = {policy.fixed!r}; name "
                "one of them: a model has weights, a fixed policy (oracle, openai:MODEL@URL) has "
                "none"
            )
        given = {key for key in fields if getattr(policy, key) != fields[key].default}
        kind, colon, _ = policy.fixed.partition(":")
        used = {"fixed"}
        if colon and kind != "scripted":
            # Models in this process are not asked by requests.
            used |= {"chat_template_kwargs", *(() if kind in ("hf", "run") else ("requests",))}
        if policy.fixed and (unused := sorted(given - used)):
            raise ValueError(
                f"policies.{name} has fixed = {policy.fixed!r}, for which other keys would change "
                f"nothing; remove {', '.join(unused)}"
            )


def _check_name(name: str) -> None:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(
            f"a policy has the name {name!r}; allowed are letters, digits, _, - and ., and that it "
            "begins with none of the last two: its files and metrics are called after it"
        )


def _check_roles(config: Config) -> None:
    if not config.roles:
        raise ValueError('[roles] is empty; give every role a policy: planner = "NAME"')
    for role, policy in config.roles.items():
        if policy not in config.policies:
            raise ValueError(
                f"role {role!r} names the policy {policy!r}, which is not defined; policies: "
                f"{', '.join(config.policies) or 'none'}. Add a table [policies.{policy}]"
            )


def _check_unused(config: Config) -> None:
    # Its weights would take memory for nothing; most often a role is misspelt.
    for name in config.policies:
        if name not in config.roles.values() and name not in config.judges:
            raise ValueError(
                f"policy {name!r} plays no role; name it in [roles] or remove [policies.{name}]"
            )


def _check_rewards(config: Config) -> None:
    for name, reward in config.rewards.items():
        _check_name(name)
        sources = [key for key in ("judge", "function", "model") if getattr(reward, key)]
        if len(sources) != 1:
            raise ValueError(
                f"rewards.{name} has {', '.join(sources) or 'no source'}; give it one: judge, the "
                "name of a fixed policy, function, or model"
            )
        asked = [key for key in ("question", "rubric") if getattr(reward, key)]
        if len(asked) != bool(reward.judge):
            wanted = "one of question and rubric" if reward.judge else "neither"
            raise ValueError(
                f"rewards.{name} has {sources[0]} and {' and '.join(asked) or 'no question'}; with "
                f"{sources[0]} it needs {wanted}"
            )
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


def _check_trained(config: Config) -> None:
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


def _check_warm_start(config: Config) -> None:
    start = config.warm_start
    if start.data and start.demonstrators:
        raise ValueError(
            f"warm_start has demonstrators and data = {start.data!r}, and can imitate one of the "
            "two; remove the other"
        )


def _check_phases(config: Config) -> None:
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
                        f"{suggestion(name, known) or '.'} There are: {', '.join(known)}"
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


def _check_envs_of_roles(config: Config) -> None:
    labels = config.env_names
    # Only with several environments does a prefix say in which one a role is.
    for role in config.roles if len(labels) > 1 else ():
        label, dot, _ = role.partition(".")
        if dot and label not in labels:
            raise ValueError(
                f"roles.{role} names the environment {label!r}{suggestion(label, labels) or '.'} "
                f"There are: {', '.join(labels)}"
            )


def _check_reward_scale(config: Config) -> None:
    for env, name in zip(config.env, config.env_names, strict=True):
        if not env.reward_scale and not _is_judged(config, name):
            raise ValueError(
                f"reward_scale = 0 of {env.label} leaves nothing to learn from: add a table "
                "[rewards.NAME] with a weight for a role that is trained, or set it above 0"
            )
        if _scales_cuts_only(config, env, name) and not config.rollout.cut_reward:
            raise ValueError(
                f"reward_scale = {env.reward_scale:g} of {env.label} would change nothing: "
                f"{config.algorithm.name} divides by the deviation of rewards. Set "
                'algorithm.norm = "none", or let weight give the environment more levels'
            )


def _is_judged(config: Config, env: str) -> bool:
    """Whether [rewards] pay for answers in an environment from which a policy learns."""
    plain = {role.rpartition(".")[2] for role in config.roles}
    roles = [role for one in plain if config.is_in(None, role := qualified(env, one))]
    return any(reward.weight_of(role) for reward in config.rewards.values() for role in roles)


def _scales_cuts_only(config: Config, env: EnvConfig, name: str) -> bool:
    """Whether a factor of rewards cancels out, except beside what an episode costs that is cut."""
    # Rewards of judges are added to it, and then the factor decides what outweighs what.
    is_seen = config.algorithm.sees_size or _is_judged(config, name)
    return env.reward_scale != 1 and not is_seen


def _check_role_gradients(config: Config) -> None:
    is_alone = all(len(config.roles_of(name)) < 2 for name in config.models)
    if config.optimizer.role_gradients and is_alone:
        raise ValueError(
            "optimizer.role_gradients compares roles that share a policy, and every policy "
            "plays one role: leave it out, or let roles name one policy"
        )


def _check_staleness(config: Config) -> None:
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


def _check_lora(config: Config) -> None:
    for name, policy in config.models.items():
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


def _check_base_precision(config: Config) -> None:
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


def _check_shards(config: Config) -> None:
    if config.fsdp.enabled and config.deepspeed.stage:
        raise ValueError(
            f"fsdp.enabled = true and deepspeed.stage = {config.deepspeed.stage} shard the same: "
            "leave one of them out"
        )
    # Cosines are of whole gradients, moments of 8 bits of whole blocks; an adapter is small.
    whole = [f"an adapter (policies.{n})" for n, one in config.models.items() if one.has_adapter]
    whole += ["optimizer.role_gradients"] * config.optimizer.role_gradients
    whole += ["optimizer.state_bits = 8"] * (config.optimizer.state_bits == 8)
    if config.is_sharded and whole:
        raise ValueError(
            f"{whole[0]} needs all of an update on every process, and it is sharded: leave it out, "
            "or deepspeed.stage and fsdp.enabled"
        )


def _check_engine(config: Config) -> None:
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


def _check_tensor_parallel(config: Config) -> None:
    wanted, gpus = config.engine.num_shards, config.ray.gpus_per_worker
    # Without a GPU the parts of an engine compute on the cores of their worker.
    if config.ray.enabled and gpus and gpus != wanted and (gpus > 1 or wanted > 1):
        raise ValueError(
            f"ray.gpus_per_worker is {gpus:g} and engine.vllm.tensor_parallel_size {wanted}: a "
            "worker computes on one GPU, its engine on tensor_parallel_size; set both alike"
        )


def _check_value(config: Config) -> None:
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


def _check_compared(config: Config) -> None:
    """Refuse policies that would never learn, since nothing of them is compared."""
    for name, policy in config.models.items():
        roles = config.roles_of(name)
        if not policy.frozen and not any(map(config.algorithm.compares, roles)):
            raise ValueError(
                f"the policy {name!r} would never be trained: {config.algorithm.name} compares "
                f"none of its roles ({', '.join(roles)}). Add one to algorithm.branching_roles "
                f"({', '.join(config.algorithm.named_roles)}), or set policies.{name}.frozen = true"
            )


def _check_target_kl(config: Config) -> None:
    optimizer = config.optimizer
    # The limit is looked at between optimizer steps, so that one step is never stopped.
    has_one_step = not optimizer.completions_per_minibatch and optimizer.num_epochs == 1
    if config.loss.target_kl and has_one_step:
        raise ValueError(
            f"loss.target_kl = {config.loss.target_kl:g} would change nothing: it ends an update "
            "between two optimizer steps, and there is one. Set "
            "optimizer.completions_per_minibatch or a higher optimizer.num_epochs"
        )


def _check_branch_frozen(config: Config) -> None:
    branching = list(filter(config.algorithm.branches, config.roles))
    phases = config.updates.phases or (None,)
    if config.updates.branch_frozen and all(config.is_in(p, r) for p in phases for r in branching):
        raise ValueError(
            f"updates.branch_frozen = true would change nothing: {config.algorithm.name} gives "
            "several candidates to no role that is not trained in some train step. Add "
            "[[updates.phases]], or leave it out"
        )


def _check_idle(config: Config) -> None:
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


def _holds(config: Config, owner: Section, condition: str) -> bool:
    for one in condition.split(" or "):
        name, _, wanted = one.partition(" = ")
        found: Any = config if "." in name else owner
        for part in name.split("."):
            found = getattr(found, part)
        is_set = any(found) if isinstance(found, tuple) else bool(found)
        if str(found) == wanted.strip('"') if wanted else is_set:
            return True
    return False


def start_advice(config: Config) -> Iterator[str]:
    """Yield what will teach little or nothing, each with what to set instead."""
    for label, env in zip(config.env_names, config.env, strict=True):
        if config.algorithm.is_by_step and env.kwargs.get("reward") == "outcome":
            yield (
                f'reward = "outcome" of {label or env.id} pays at the end of an episode alone, and '
                f"{config.algorithm.name} compares candidates by the reward of their own step: "
                "decisions before the last teach next to nothing. Compare whole episodes by what "
                'followed: algorithm.name = "reinforce", or "auto"'
            )
        if _scales_cuts_only(config, env, label):
            yield (
                f"reward_scale = {env.reward_scale:g} of {label or env.id} changes only what "
                f"rollout.cut_reward = {config.rollout.cut_reward:g} weighs beside its rewards: "
                f"{config.algorithm.name} divides by their deviation. For more, set algorithm.norm "
                '= "none", or let weight give the environment more levels'
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


def _untested_rewards(config: Config) -> Iterator[tuple[str, str]]:
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


_Rule = Callable[[Config], None]
_BEFORE_DEFAULTS: Sequence[_Rule] = (
    _check_env,
    _check_policies,
    _check_roles,
    _check_rewards,
    _check_unused,
    _check_trained,
    _check_warm_start,
)
"""What has to hold before defaults can be settled."""
_AFTER_DEFAULTS: Sequence[_Rule] = (
    _check_phases,
    _check_envs_of_roles,
    _check_branch_frozen,
    _check_idle,
    _check_reward_scale,
    _check_role_gradients,
    _check_staleness,
    _check_lora,
    _check_base_precision,
    _check_shards,
    _check_engine,
    _check_tensor_parallel,
    _check_value,
    _check_compared,
    _check_target_kl,
)
"""What is asked of the values that a run has in the end."""
