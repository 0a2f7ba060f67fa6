"""The configuration of a run: one TOML file, flags over it, every rule checked here.

Defaults are overridden by the file, the file by flags. Attribute docstrings are the help texts.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pettingllms_trainers.advantage import Baseline, Credit, Grouping, Norm

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
    "RolloutConfig",
    "WarmStartConfig",
    "config_hash",
]


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


class EnvConfig(_Section):
    """The environment that is played."""

    id: str
    """Id of an installed environment, such as plan_path_v0."""
    kwargs: dict[str, Any] = {}
    """Arguments of the environment; flags may add to them: --env.kwargs.size 8."""


class PolicyConfig(_Section):
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
    chat_template_kwargs: dict[str, Any] = {}
    """Arguments of the tokenizer's chat template, such as enable_thinking = false."""


class RolloutConfig(_Section):
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
    max_failed_fraction: float = Field(default=0.05, ge=0, lt=1)
    """Share of a step's rollouts, and of its candidates, that may fail before the run stops."""


class AdvantageConfig(_Section):
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


class LossConfig(_Section):
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
    old_logprobs: Literal["engine", "recompute"] = "engine"
    """Denominator of the ratio: what the engine reported, or a forward pass before the update."""
    importance_cap: float = Field(default=0.0, ge=0)
    """Truncated importance sampling: tokens are weighted by trainer over engine probability, at
    most this; 0: off. Needs old_logprobs = "recompute"."""


class OptimizerConfig(_Section):
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


class EngineConfig(_Section):
    """How the in-process `transformers` engine generates."""

    attention: Literal["shared_prefix", "expanded"] = "shared_prefix"
    """shared_prefix: candidates attend one copy of their prompt; expanded: plain decoding, for
    models whose attention cannot be replaced (needs optimizer.packing = false)."""
    tokens_per_batch: int = Field(default=65536, ge=1)
    """Prompt and completion tokens that are held at once; does not change the result."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the model in generation and training; weights are kept in float32."""


class WarmStartConfig(_Section):
    """Supervised steps on demonstrations of reference policies, before reinforcement learning."""

    num_steps: int = Field(default=0, ge=0)
    """Supervised steps of every policy; 0: no warm start."""
    demonstrators: dict[str, dict[str, Annotated[float, Field(gt=0)]]] = {}
    """Role to the reference policies of the environment that it learns to imitate, with weights:
    tool = { random = 0.9, oracle = 0.1 }."""
    num_episodes: int = Field(default=256, ge=1)
    """Episodes that are demonstrated."""
    batch_size: int = Field(default=64, ge=1)
    """Demonstrations per supervised step."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Learning rate of the supervised steps."""


class EvaluationConfig(_Section):
    """Held-out evaluation: one sample per decision, no tree."""

    kwargs: dict[str, Any] = {"split": "test"}
    """Arguments of the environment that differ from [env.kwargs]."""
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


class CheckpointConfig(_Section):
    """When the run can be resumed from."""

    every: int = Field(default=10, ge=1)
    """Train steps between checkpoints."""
    keep: int = Field(default=2, ge=1)
    """Newest checkpoints that are kept."""


class LoggingConfig(_Section):
    """What is shown and written beside the metrics. May differ when a run is resumed."""

    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress view: a live table, one line per train step, nothing; auto: live on a terminal."""
    tensorboard: bool = True
    """Whether TensorBoard files are written when the package tensorboard is installed."""
    rollouts_every: int = Field(default=10, ge=0)
    """Train steps between rollout trees in rollouts.jsonl; 0: none."""
    num_rollouts: int = Field(default=2, ge=1)
    """Rollout trees that are written then."""


class Config(_Section):
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
        return self

    @model_validator(mode="after")
    def _check_engine(self) -> Config:
        if self.loss.importance_cap and self.loss.old_logprobs != "recompute":
            raise ValueError('loss.importance_cap needs loss.old_logprobs = "recompute"')
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
