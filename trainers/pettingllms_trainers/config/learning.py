"""The part of a configuration that says how a policy learns from advantages: loss and optimizer."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pettingllms_trainers.config.section import Section

_Decay = Annotated[float, Field(ge=0, lt=1)]


class LossConfig(Section):
    """The clipped policy loss."""

    objective: Literal["clip", "cispo"] = "clip"
    """clip: the surrogate of PPO, without gradient where the ratio has left its range; cispo:
    log-probabilities weighted by the ratio, at most 1 + clip_high, so that every token keeps its
    gradient (MiniMax-M1, arXiv 2506.13585, eq. 4)."""
    ratio: Literal["token", "sequence"] = "token"
    """token: the ratio of each token; sequence: the geometric mean over its completion, for all its
    tokens (GSPO, arXiv 2507.18071, eq. 7). That is nearer to 1: GSPO has clip_low 3e-4 and
    clip_high 4e-4, with aggregation = "sequence_mean"."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """Ratios below 1 - clip_low give no further gradient."""
    clip_high: float = Field(default=0.2, gt=0)
    """Ratios above 1 + clip_high give no further gradient."""
    dual_clip: float = Field(default=0.0, ge=0)
    """Of tokens with a negative advantage, ratios above this give no further gradient; without it
    one token that has become likely can outweigh all others. 0: off; 3 in the source (dual-clip
    PPO, arXiv 1912.09729, eq. 5). With objective = "clip" only."""
    aggregation: Literal["token_mean", "sequence_mean", "length_free"] = "token_mean"
    """token_mean: all tokens of a mini-batch weigh the same; sequence_mean: all completions do;
    length_free: sum over a completion's tokens, divided by a constant (Dr. GRPO)."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus; with entropy_target at the start."""
    entropy_target: float = Field(default=0.0, ge=0)
    """The weight of the entropy bonus rises by 0.005 after an update whose mean entropy was at or
    below this, in nats, and falls by as much after others, in which the bonus rests (Skywork-OR1,
    arXiv 2505.22312; there 0.2). 0: it stays."""
    target_kl: float = Field(default=0.0, ge=0)
    """An update ends with the mini-batch before whose step the mean KL divergence of the sampling
    from the new policy (approx_kl) is above this, in nats; 0: no such bound."""
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the KL penalty to the reference, the policy at the start of training; with
    kl_target at the start."""
    kl_target: float = Field(default=0.0, ge=0)
    """The weight of the KL penalty changes, by a fifth per update at most, so that the mean KL to
    the reference comes to this, in nats per token (arXiv 1909.08593, section 2.2). 0: it stays."""
    reference_every: int = Field(default=0, ge=0)
    """Train steps after which the reference moves to the policy; 0: it stays at the start."""
    reference_mix: float = Field(default=1.0, gt=0, le=1)
    """How far it then moves: share of the policy's weights (TR-DPO, arXiv 2404.09656; 0.6 in TRL).
    1: all the way."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that KL from one sampled token: log-ratio (with the gradient of k2), half its
    square, or the one of GRPO, unbiased and never negative, whose gradient is right near the
    reference only."""
    use_bias_correction_kl: bool = False
    """Whether that estimate is multiplied by the importance ratio (DeepSeek-V3.2, arXiv 2512.02556,
    section 3.1; the option of TRL): unbiased then, with the right gradient, when tokens were
    sampled by an older policy. Needs k3."""
    mask_truncated_completions: bool = False
    """Whether completions that reached the token limit are left out of the loss (DAPO; the option
    of TRL). They are compared with the others all the same."""
    old_logprobs: Literal["auto", "engine", "recompute"] = "auto"
    """Denominator of the ratio: what the engine reported, or a forward pass before the update;
    auto: recompute when the engine has weights of its own (vLLM) or with rollout.max_staleness,
    else engine."""
    importance_cap: float = Field(default=2.0, ge=0)
    """Truncated importance sampling: tokens are weighted by trainer over engine probability, at
    most this; 0: off. Without effect where old_logprobs is engine: both are the same there."""
    importance_level: Literal["token", "sequence"] = "token"
    """Whether that weight is of a token, or the product over its completion (MIS)."""
    importance_mode: Literal["truncate", "mask"] = "truncate"
    """What becomes of a weight above importance_cap: truncate: it is the cap; mask: what it weighs
    is left out of the loss (IcePop, of Ring-1T, arXiv 2510.18855, section 3.2)."""
    importance_floor: float = Field(default=0.0, ge=0, lt=1)
    """With importance_mode = "mask", weights below this are left out as well; 0.5 in IcePop."""

    @model_validator(mode="after")
    def _check_kl(self) -> LossConfig:
        if self.use_bias_correction_kl and self.kl_estimator != "k3":
            raise ValueError(
                'loss.use_bias_correction_kl needs loss.kl_estimator = "k3"; it is '
                f'"{self.kl_estimator}"'
            )
        return self

    @model_validator(mode="after")
    def _check_reference(self) -> LossConfig:
        keys = [key for key in ("kl_target", "reference_every") if getattr(self, key)]
        if keys and not self.kl_coefficient:
            raise ValueError(
                f"loss.{keys[0]} = {getattr(self, keys[0]):g} would change nothing: without "
                "loss.kl_coefficient above 0 there is no reference"
            )
        if self.reference_mix != 1 and not self.reference_every:
            raise ValueError(
                f"loss.reference_mix = {self.reference_mix:g} would change nothing: it needs "
                "loss.reference_every, the train steps after which the reference moves"
            )
        return self

    @model_validator(mode="after")
    def _check_objective(self) -> LossConfig:
        if self.dual_clip and (self.objective != "clip" or self.dual_clip <= 1 + self.clip_high):
            raise ValueError(
                f"loss.dual_clip = {self.dual_clip:g} would change nothing, or cut what clip_high "
                f'allows: it needs loss.objective = "clip" (now "{self.objective}") and a value '
                f"above 1 + clip_high = {1 + self.clip_high:g}"
            )
        if self.importance_floor and self.importance_mode != "mask":
            raise ValueError(
                f"loss.importance_floor = {self.importance_floor:g} would change nothing: it needs "
                'loss.importance_mode = "mask"'
            )
        return self


class OptimizerConfig(Section):
    """AdamW and how a step's completions are divided into mini-batches."""

    learning_rate: float = Field(default=0.0, ge=0)
    """Maximum learning rate; 0: as what is trained: 1e-6 for full weights, 1e-5 for adapters, 1e-3
    for tiny models."""
    betas: tuple[_Decay, _Decay] = (0.9, 0.95)
    """Decay of AdamW's two moments."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    num_warmup_steps: int = Field(default=0, ge=0)
    """Train steps of linear warm-up."""
    final_fraction: float = Field(default=1.0, ge=0, le=1)
    """The learning rate falls linearly to this share of its highest value; 1 keeps it."""
    state_bits: Literal[8, 32] = 32
    """Bits of a number of AdamW's moments. 8: in blocks of 256 with their maximum, a quarter of the
    memory; steps are rounded. Needs the extra pettingllms-trainers[quantised], and no
    deepspeed.stage; experimental on GPUs."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm."""
    num_epochs: int = Field(default=1, ge=1)
    """Passes over the groups of a train step."""
    completions_per_minibatch: int = Field(default=0, ge=0)
    """Completions per optimizer step, at most on average; 0: all of the train step at once. A
    number is the same size of a step in all modes."""
    spread_prompts: bool = False
    """Whether the K completions of a prompt of a tree come into different optimizer steps, as those
    of whole episodes do. A step then sees more prompts, at the cost of computing a prompt in up to
    K steps. In Plan-Path AT-GRPO gained a point by it, in Sudoku none. false: they stay
    together."""
    tokens_per_microbatch: int = Field(default=0, ge=0)
    """Tokens that are in memory at once; does not change the result. 0: 16384 for tiny models, 4096
    where there is a pretrained one."""
    packing: bool = True
    """Whether a group's prompt is computed once for all its completions; same result."""
    packed_attention: Literal["auto", "flex", "padded"] = "auto"
    """With packing only. flex: FlexAttention, compiled for the GPU at the first steps, no copies
    of prompts (experimental); padded: rows padded to one length; auto: flex on a GPU."""
    role_gradients: bool = False
    """Whether gradient norms of the roles of a shared policy, their shares of the gradient and the
    cosines between them are logged. One backward pass as before, role after role; memory for one
    more gradient per further role. Does not change the result, up to rounding."""
    gradient_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass: less memory, more time."""

    def num_minibatches(self, num_completions: int, num_prompts: int) -> int:
        """Return how many optimizer steps a pass over the completions of a train step takes.

        Args:
            num_completions: Those that a policy is trained on.
            num_prompts: Their prompts; at most one step for each, unless they are spread.
        """
        if not self.completions_per_minibatch:
            return min(num_prompts, 1)
        most = num_completions if self.spread_prompts else num_prompts
        return min(most, math.ceil(num_completions / self.completions_per_minibatch))
