"""The part of a configuration that says how is sampled, compared and learnt."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pettingllms_trainers.config.section import Section

__all__ = [
    "AdvantageConfig",
    "Baseline",
    "BranchChoice",
    "Credit",
    "Grouping",
    "LossConfig",
    "Norm",
    "OptimizerConfig",
    "RoleSamplingConfig",
    "RolloutConfig",
    "RolloutMode",
    "ValueConfig",
]

RolloutMode = Literal["tree", "parallel", "vine", "lockstep"]
BranchChoice = Literal["greedy", "random", "softmax"]
Grouping = Literal["at_grpo", "agent_turn", "agent", "turn", "trajectory", "none"]
Credit = Literal["step", "return_to_go", "state_return", "episode", "value", "continuation"]
Baseline = Literal["mean", "leave_one_out"]
Norm = Literal["std", "batch", "none"]

_StopText = Annotated[str, Field(min_length=1)]
_Decay = Annotated[float, Field(ge=0, lt=1)]


class RoleSamplingConfig(Section):
    """What is sampled otherwise for one role; keys that are left out are those of [rollout]."""

    temperature: float | None = Field(default=None, gt=0)
    """Sampling temperature of the role in training."""
    max_completion_tokens: int | None = Field(default=None, ge=1)
    """Longest completion of the role."""
    stop: tuple[_StopText, ...] | None = None
    """Texts that end a completion of the role."""


class RolloutConfig(Section):
    """How training episodes are sampled."""

    mode: RolloutMode = "tree"
    """tree: K candidates at every decision, one is followed; parallel: K whole episodes; vine: a
    whole episode and K - 1 that fork from one of its decisions, drawn at random; lockstep: K
    episodes that continue from the best of them whenever their rewards differ."""
    num_levels: int = Field(default=32, ge=1)
    """E: levels per train step, one rollout tree each."""
    num_candidates: int = Field(default=4, ge=2)
    """K: candidates per decision of a tree, episodes per level in the other modes."""
    branch_choice: BranchChoice = "greedy"
    """Candidate an episode continues with: the best (the paper), any, or by softmax of rewards."""
    branch_temperature: float = Field(default=1.0, gt=0)
    """Divides the rewards in softmax branch_choice."""
    branching_roles: tuple[str, ...] = ()
    """Roles whose decisions have K candidates in a tree, those of others one; empty: all roles."""
    num_branchings: int = Field(default=0, ge=0)
    """0: a tree branches at every decision and follows one candidate. B: a whole episode is played
    first, then B of its decisions, drawn at random, get K - 1 further candidates each (Tree-GRPO):
    what is sampled does not grow with K times the depth."""
    num_continuations: int = Field(default=1, ge=1)
    """M: with advantage.credit = "continuation", times that every candidate is played on to the end
    of the episode by the present policies."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of training. There is no top-p or top-k here: importance ratios are
    taken in the distribution that was sampled."""
    max_completion_tokens: int = Field(default=0, ge=0)
    """Longest completion; 0: 64 for tiny models, 512 for pretrained ones, 4096 where
    enable_thinking = true is among the chat_template_kwargs."""
    stop: tuple[_StopText, ...] = ()
    """Texts that end a completion."""
    per_role: dict[str, RoleSamplingConfig] = Field(default={})
    """Tables [rollout.per_role.ROLE] of what differs for a role."""
    max_failed_fraction: float = Field(default=0.05, ge=0, lt=1)
    """Share of a step's rollouts, and of its candidates, that may fail before the run stops."""
    max_refills: int = Field(default=0, ge=0)
    """Rounds of num_levels further levels that a train step may play, while a policy that is
    trained has fewer than min_groups groups whose rewards differ: the dynamic sampling of DAPO."""
    min_groups: int = Field(default=1, ge=1)
    """Groups whose rewards differ that every trained policy should have in a train step; counts
    with max_refills only. A group is what advantage.grouping compares, of one decision or many;
    with none the whole batch is one."""
    ahead: int = Field(default=0, ge=0, le=1)
    """1: the rollouts of the next train step are played while the policies learn, by the weights
    before the update, and weighted accordingly (loss.importance_cap). A step takes as long as the
    longer of both where engines compute elsewhere (vLLM); the model that learns cannot generate
    meanwhile. 0: rollouts by the newest weights."""
    continuous: bool = False
    """Whether every episode continues as soon as its own completions are there, instead of waiting
    for the longest of all; for engines that take requests while they compute (vLLM). The same
    results, up to float rounding."""
    env_threads: int = Field(default=0, ge=0)
    """Threads that step environments while engines generate: for environments that run programs or
    verifiers. 0: none. With threads, what engines compute together depends on timing, so that a run
    on a CPU is repeated up to float rounding only."""


class AdvantageConfig(Section):
    """How candidates are compared."""

    grouping: Grouping = "at_grpo"
    """Who is compared: at_grpo (one prompt); ablations: agent_turn, agent, turn (what shares these
    within one level), trajectory (episodes of one level), none (the whole batch)."""
    credit: Credit = "step"
    """By what: step: the reward of the own step; in trees also value: reward plus V of the next
    decision's prompt ([value]), and continuation: reward plus the mean return of
    rollout.num_continuations continuations; in the other modes also return_to_go, the return from
    there on (parallel, vine), state_return, the same with what follows averaged over the episodes
    of the level that were in the state it led to (parallel, lockstep), and episode, the return of
    the whole episode (parallel)."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per decision, of any role, of what follows: in all credits but step."""
    baseline: Baseline = "mean"
    """What is subtracted: the mean of the group, or of the other members."""
    norm: Norm = "std"
    """What divides: the standard deviation of the group (GRPO); batch: that of all groups of the
    step, per role, so that groups with little between their candidates teach little; or nothing
    (Dr. GRPO)."""


class ValueConfig(Section):
    """V, the return that is expected from a decision on; with advantage.credit = "value" only.

    It is read at the end of the decision's prompt by the policy that is to act. No gradient of V
    reaches a policy, so there is no coefficient to balance.
    """

    model: Literal["head", "own"] = "head"
    """head: a small network on the policy's last hidden state at the end of the prompt, beside an
    adapter if there is one; own: a small transformer of its own over the prompt's tokens."""
    hidden_size: int = Field(default=128, ge=8)
    """Width of the head's hidden layer, or of the model of its own."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Learning rate of V."""
    num_epochs: int = Field(default=4, ge=1)
    """Passes over the examples per train step."""
    batch_size: int = Field(default=128, ge=1)
    """Examples per optimizer step of V."""
    replay_steps: int = Field(default=0, ge=0)
    """Earlier train steps whose examples are learnt from too."""
    path_weight: float = Field(default=0.5, ge=0, le=1)
    """Share of the followed path's return in the target; the rest is the tree backup, the mean over
    the candidates of reward + V."""
    clip: float = Field(default=0.0, ge=0)
    """V moves at most this far from its last prediction per train step (PPO's value clipping); 0:
    any distance."""
    shrink: bool = False
    """Whether predictions are drawn towards their mean as far as V failed to predict the last step:
    by the share of the variance that it explained."""
    num_warmup_steps: int = Field(default=0, ge=0)
    """Train steps in which V learns from path returns alone, and candidates are compared by their
    rewards alone. V is 0 everywhere before its first fit, so that none are needed."""


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
    target_kl: float = Field(default=0.0, ge=0)
    """An update ends with the mini-batch before whose step the mean KL divergence of the sampling
    from the new policy (approx_kl) is above this, in nats; 0: no such bound."""
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the KL penalty to the policy at the start of training."""
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
    auto: recompute when the engine has weights of its own (vLLM) or rollouts are played ahead, else
    engine."""
    importance_cap: float = Field(default=2.0, ge=0)
    """Truncated importance sampling: tokens are weighted by trainer over engine probability, at
    most this; 0: off. Without effect where old_logprobs is engine: both are the same there."""

    @model_validator(mode="after")
    def _check_kl(self) -> LossConfig:
        if self.use_bias_correction_kl and self.kl_estimator != "k3":
            raise ValueError(
                'loss.use_bias_correction_kl needs loss.kl_estimator = "k3"; it is '
                f'"{self.kl_estimator}"'
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
    """Of packing. flex: FlexAttention, compiled for the GPU at the first steps, without copies of
    prompts (experimental); padded: rows padded to one length; auto: flex on a GPU."""
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
