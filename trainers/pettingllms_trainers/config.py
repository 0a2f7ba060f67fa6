"""The configuration of a run: one TOML file, flags over it, every rule checked here.

Defaults are overridden by the file, the file by flags. Attribute docstrings are the help texts.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pettingllms_trainers.advantage import Baseline, Credit, Grouping, Norm
from pettingllms_trainers.engine_config import Endpoints, EngineConfig
from pettingllms_trainers.section import Section

__all__ = [
    "AdvantageConfig",
    "CheckpointConfig",
    "Config",
    "EngineConfig",
    "EnvConfig",
    "EvaluationConfig",
    "LoggingConfig",
    "LossConfig",
    "OptimizerConfig",
    "PolicyConfig",
    "RoleSamplingConfig",
    "RolloutConfig",
    "WarmStartConfig",
    "config_hash",
]


class EnvConfig(Section):
    """The environment that is played."""

    id: str
    """Id of an installed environment, such as plan_path_v0."""
    kwargs: dict[str, Any] = Field(default={})
    """Arguments of the environment; flags may add to them: --env.kwargs.size 8."""


class PolicyConfig(Section):
    """One set of weights."""

    model: str
    """Hugging Face directory or hub name of a causal language model, or "tiny": a small one is
    built from the sizes below."""
    frozen: bool = False
    """Whether the policy plays without being trained."""
    hidden_size: int = Field(default=64, ge=8)
    """Width of a tiny model."""
    num_layers: int = Field(default=3, ge=1)
    """Layers of a tiny model."""
    num_heads: int = Field(default=4, ge=1)
    """Attention heads of a tiny model; twice their number divides the width."""
    max_length: int = Field(default=1024, ge=8)
    """Longest prompt and completion of a tiny model, in tokens."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of a tiny model's random weights."""
    vocabulary: str = ""
    """Characters that a tiny model can read and write; empty: printable ASCII and newline."""
    chat_template_kwargs: dict[str, Any] = Field(default={})
    """Arguments of the tokenizer's chat template, such as enable_thinking = false."""
    endpoints: Endpoints = ()
    """Addresses of the vLLM servers that generate for this policy when engine.kind is
    vllm_server, such as http://127.0.0.1:8000; all have the same model."""


class RoleSamplingConfig(Section):
    """What is sampled otherwise for one role; keys that are left out are those of [rollout]."""

    temperature: float | None = Field(default=None, gt=0)
    """Sampling temperature of the role in training."""
    max_completion_tokens: int | None = Field(default=None, ge=1)
    """Longest completion of the role."""
    stop: tuple[str, ...] | None = None
    """Texts that end a completion of the role."""


class RolloutConfig(Section):
    """How training episodes are sampled."""

    mode: Literal["tree", "parallel"] = "tree"
    """tree: K candidates at every decision, one is followed; parallel: K whole episodes."""
    num_levels: int = Field(default=32, ge=1)
    """E: levels per train step, one rollout tree each."""
    num_candidates: int = Field(default=4, ge=2)
    """K: candidates per decision, or episodes per level in parallel mode."""
    advance: Literal["greedy", "random", "softmax"] = "greedy"
    """Candidate an episode goes on with: the best (the paper), any, or by softmax of rewards."""
    advance_temperature: float = Field(default=1.0, gt=0)
    """Divides the rewards in softmax advance."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of training. There is no top-p or top-k here: importance ratios are
    taken in the distribution that was sampled."""
    max_completion_tokens: int = Field(default=64, ge=1)
    """Longest completion."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion."""
    per_role: dict[str, RoleSamplingConfig] = Field(default={})
    """Tables [rollout.per_role.ROLE] of what differs for a role."""
    max_failed_fraction: float = Field(default=0.05, ge=0, lt=1)
    """Share of a step's rollouts, and of its candidates, that may fail before the run stops."""


class AdvantageConfig(Section):
    """How candidates are compared."""

    grouping: Grouping = "at_grpo"
    """Who is compared: at_grpo (one prompt); ablations: agent_turn, agent, turn (what shares these
    within one level), trajectory (episodes of one level), none (the whole batch)."""
    credit: Credit = "step"
    """By what: the reward of the own step, the return from there on, the return of the episode."""
    baseline: Baseline = "mean"
    """What is subtracted: the mean of the group, or of the other members."""
    norm: Norm = "std"
    """What divides: the standard deviation of the group (GRPO), or nothing (Dr. GRPO)."""


class LossConfig(Section):
    """The clipped policy loss."""

    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """Ratios below 1 - clip_low give no further gradient."""
    clip_high: float = Field(default=0.2, gt=0)
    """Ratios above 1 + clip_high give no further gradient."""
    aggregation: Literal["token_mean", "sequence_mean", "length_free"] = "token_mean"
    """token_mean: all tokens of a mini-batch weigh the same; sequence_mean: all completions do;
    length_free: sum over a completion's tokens, divided by a constant (Dr. GRPO)."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the KL penalty to the policy at the start of training."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that KL from one sampled token: log-ratio, half its square, or the unbiased one
    that is never negative."""
    old_logprobs: Literal["auto", "engine", "recompute"] = "auto"
    """Denominator of the ratio: what the engine reported, or a forward pass before the update;
    auto: recompute when the engine has weights of its own (vLLM), else engine."""
    importance_cap: float = Field(default=2.0, ge=0)
    """Truncated importance sampling: tokens are weighted by trainer over engine probability, at
    most this; 0: off. Without effect where old_logprobs is engine: both are the same there."""


class OptimizerConfig(Section):
    """AdamW and how a step's groups are cut into mini-batches."""

    learning_rate: float = Field(default=1e-6, gt=0)
    """Highest learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay of AdamW's two moments."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    num_warmup_steps: int = Field(default=0, ge=0)
    """Train steps of linear warm-up."""
    final_fraction: float = Field(default=1.0, ge=0, le=1)
    """The learning rate falls linearly to this share of its highest value; 1 keeps it."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm."""
    num_epochs: int = Field(default=1, ge=1)
    """Passes over the groups of a train step."""
    groups_per_minibatch: int = Field(default=0, ge=0)
    """Groups per optimizer step; 0: all groups of the train step at once."""
    tokens_per_microbatch: int = Field(default=16384, ge=1)
    """Tokens that are in memory at once; does not change the result."""
    packing: bool = True
    """Whether a group's prompt is computed once for all its completions; same result."""
    gradient_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass: less memory, more time."""


class WarmStartConfig(Section):
    """Supervised steps on demonstrations of reference policies, before reinforcement learning."""

    num_steps: int = Field(default=0, ge=0)
    """Supervised steps of every policy; 0: no warm start."""
    demonstrators: dict[str, dict[str, Annotated[float, Field(gt=0)]]] = Field(default={})
    """Role to the reference policies of the environment that it learns to imitate, with weights:
    tool = { random = 0.9, oracle = 0.1 }."""
    num_episodes: int = Field(default=256, ge=1)
    """Episodes that are demonstrated."""
    batch_size: int = Field(default=64, ge=1)
    """Demonstrations per supervised step."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Learning rate of the supervised steps."""


class EvaluationConfig(Section):
    """Held-out evaluation: one sample per decision, no tree."""

    kwargs: dict[str, Any] = Field(default={})
    """Arguments of the environment that differ from [env.kwargs]; split is "test" unless given."""
    num_episodes: int = Field(default=128, ge=1)
    """Levels of the held-out set; the same ones at every evaluation."""
    seed: int = Field(default=0, ge=0)
    """Chooses the levels of the held-out set, whatever the seed of the run."""
    every: int = Field(default=0, ge=0)
    """Train steps between evaluations; 0: before and after training only."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of the sampled arm; the other arm is greedy."""
    references: tuple[str, ...] = ()
    """Reference policies of the environment whose results stand beside."""
    swap_roles: bool = True
    """Whether the final report plays the roles with each other's policies."""


class CheckpointConfig(Section):
    """When the run can be resumed from."""

    every: int = Field(default=10, ge=1)
    """Train steps between checkpoints."""
    keep: int = Field(default=2, ge=1)
    """Newest checkpoints that are kept."""


class LoggingConfig(Section):
    """What is shown and written beside the metrics. May differ when a run is resumed."""

    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress view: a live table, one line per train step, nothing; auto: live on a terminal."""
    tensorboard: bool = True
    """Whether TensorBoard files are written when the package tensorboard is installed."""
    rollouts_every: int = Field(default=10, ge=0)
    """Train steps between rollout trees in rollouts.jsonl; 0: none."""
    num_rollouts: int = Field(default=2, ge=1)
    """Rollout trees that are written then."""


class Config(Section):
    """AT-GRPO training of a team of agents on one environment."""

    env: EnvConfig
    policies: dict[str, PolicyConfig]
    """Policies by name."""
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
    rollout: RolloutConfig = RolloutConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    engine: EngineConfig = EngineConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()

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
        unused = [name for name in self.policies if name not in self.roles.values()]
        if unused:
            raise ValueError(
                f"policy {unused[0]!r} plays no role; name it in [roles] or remove "
                f"[policies.{unused[0]}]"
            )
        demonstrated = self.warm_start.demonstrators if self.warm_start.num_steps else {}
        for role in demonstrated:
            if role not in self.roles:
                raise ValueError(
                    f"warm_start.demonstrators names the role {role!r}; roles: "
                    f"{', '.join(self.roles)}"
                )
        for role in self.rollout.per_role:
            if role not in self.roles:
                raise ValueError(
                    f"rollout.per_role names the role {role!r}; roles: {', '.join(self.roles)}"
                )
        return self

    @property
    def resolved_loss(self) -> LossConfig:
        """The loss with `old_logprobs` chosen."""
        if self.loss.old_logprobs != "auto":
            return self.loss
        choice = "engine" if self.engine.kind == "transformers" else "recompute"
        return self.loss.model_copy(update={"old_logprobs": choice})

    @model_validator(mode="after")
    def _check_engine(self) -> Config:
        used: dict[str, str] = {}
        for name, policy in self.policies.items():
            if bool(policy.endpoints) != (self.engine.kind == "vllm_server"):
                raise ValueError(
                    f'policies.{name}.endpoints are needed with engine.kind = "vllm_server" and '
                    f'only there; got engine.kind = "{self.engine.kind}" and '
                    f"{len(policy.endpoints)} endpoints"
                )
            for url in policy.endpoints:
                if url in used:
                    raise ValueError(
                        f"the policies {used[url]!r} and {name!r} name the same server {url}; a "
                        "server holds the weights of one policy. Start one for each"
                    )
                used[url] = name
        if self.engine.attention == "expanded" and self.optimizer.packing:
            raise ValueError('engine.attention = "expanded" needs optimizer.packing = false')
        return self

    @model_validator(mode="after")
    def _check_advantage(self) -> Config:
        advantage, mode = self.advantage, self.rollout.mode
        if mode == "tree" and advantage.credit != "step":
            raise ValueError(
                f'advantage.credit = "{advantage.credit}" needs rollout.mode = "parallel": '
                "candidates that a tree does not follow have no return"
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


def config_hash(config: Config) -> str:
    """Return 16 hexadecimal digits of all that decides a run's results.

    Where a run writes and what it shows is left out: both may differ when it is resumed.
    """
    data = config.model_dump(mode="json", exclude={"output_dir": True, "logging": True})
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
