"""Plain values that travel along the data path of the trainer. No torch, no behaviour.

``GenerateRequest -> TokenCompletion -> Candidate -> Decision -> RolloutTree``, and then
``TrainingGroup -> UpdateStats``.
"""

# A lambda inside `Annotated` is checked without the parameter type that `Measured` declares.
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.fields import FieldInfo

from pettingllms.ends import End

FinishReason = Literal["stop", "length"]


MIN_TEMPERATURE = 0.01
"""vLLM takes this for anything lower, and ratios would be of another distribution."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingSettings:
    """How completions are drawn from the policy's next-token distribution."""

    temperature: float = 1.0
    """Divides the logits, at least `MIN_TEMPERATURE`; 0 takes the most probable token (greedy)."""
    top_p: float = 1.0
    """Smallest set of tokens whose probability reaches this is kept; 1 keeps all."""
    top_k: int = 0
    """Number of most probable tokens that are kept; 0 keeps all."""
    max_completion_tokens: int = 64
    """A completion that reaches this many tokens ends with finish reason ``length``."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion, besides the tokenizer's end-of-sequence token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """One prompt and the number of completions wanted of it."""

    prompt_ids: tuple[int, ...]
    """Token ids of the prompt, special tokens included; at least one."""
    num_candidates: int
    """K: completions that share this prompt; at least 1."""
    sampling: SamplingSettings
    """How to draw them."""
    seed: int
    """Decides the draws, together with the weights; what else is in the call does not matter."""
    grammar: str = ""
    """Form that the engine enforces on the completions (`Constraints.grammar`); empty: none."""
    tools: str = ""
    """Tools that may be called, a JSON array; empty: none."""
    adapter: str | None = None
    """LoRA adapter that generates, of an engine with several; empty: the bare base model. None: the
    engine has one policy."""


class Lengths(NamedTuple):
    """Longest sequences of a policy, in tokens."""

    prompt: int
    """Longest prompt."""
    completion: int
    """Longest completion; prompt and completion together fit the context."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestLimits:
    """What a request is checked against: what the model and the machine can hold."""

    max_batch_tokens: int
    """Tokens of prompts and completions, at their maximum lengths, that are held at once."""
    context_length: int | None
    """Longest prompt and completion together; None for no limit."""
    vocab_size: int
    """Number of token ids of the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCompletion:
    """What the policy wrote: exactly the tokens that were drawn."""

    token_ids: tuple[int, ...]
    """[T] sampled token ids, with the end token if one was sampled; empty for a fixed policy."""
    logprobs: tuple[float, ...]
    """[T] log-probability of each token in the distribution it was drawn from, in nats."""
    text: str
    """Decoded ``token_ids`` without special tokens, cut before a stop text."""
    finish_reason: FinishReason
    """``stop``: an end token or stop text was sampled; ``length``: the limit was reached."""
    entropies: tuple[float, ...] = ()
    """[T] entropy of the distribution that each token was drawn from, in nats; empty for an engine
    that does not return whole distributions, such as vLLM."""
    swaps: tuple[int, ...] = ()
    """Positions of tokens, in order, before which the engine took weights one update newer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One answer of an agent and what it earned in its own fork of the environment."""

    completion: TokenCompletion
    """The answer, as it was sampled."""
    reward: float
    """``alpha * team + local`` of the acting agent, scaled and judged as the run wants it."""
    team: float
    """Team part of the reward."""
    local: float
    """Local part of the reward."""
    parse_error: str | None = None
    """Why the text could not be read as an action; None when it could."""
    success: bool = False
    """Whether the task is solved after this action."""
    value: float = 0.0
    """Discounted return expected after it, by V or continuations, in rewards of whoever acts; 0
    with algorithms that compare rewards alone."""
    env_reward: float | None = None
    """Reward as the environment gave it, where `reward` is scaled or judged; None: the same."""
    judged: Mapping[str, float] = field(default_factory=dict[str, float])
    """Name of a reward of the run file to its score; see `rollout.judging.ExtraReward`."""
    end: End | None = None
    """Why the episode is over after this action; None while it is not."""
    cause: str | None = None
    """What the environment raised on the text; None when it raised nothing."""
    advantage: float | None = None
    """Its advantage; None before advantages are computed."""


class DecisionKey(NamedTuple):
    """Identity of a decision within a train step."""

    episode: int
    """Episode id, unique within a training step."""
    position: int
    """Number of the decision in play order, from 0, without those of a prefix."""
    agent: str
    """Agent name, ``<role>_<n>``."""
    turn: int
    """Turn of the environment, from 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """All candidates of one decision: same state, same agent, same prompt tokens."""

    key: DecisionKey
    """Where the decision was taken."""
    role: str
    """Role of the agent; `ENV.ROLE` in a run of several environments."""
    policy: str
    """Name of the policy that was sampled."""
    prompt_ids: tuple[int, ...]
    """Prompt tokens that all candidates share; empty for a fixed policy."""
    observation: str
    """The prompt as text."""
    candidates: tuple[Candidate, ...]
    """The K candidates, in sampling order."""
    temperature: float = 1.0
    """Sampling temperature of the candidates."""
    grammar: str = ""
    """Form that the engine enforced on the candidates; empty: none."""
    chosen: int | None = None
    """Index of the candidate with which the episode went on; None: not chosen yet."""
    state_key: str = ""
    """`TextEnv.state_key` before the decision: equal in states that play on alike."""
    within_stage: bool = False
    """Whether agents who act simultaneously with this one were still to act."""
    version: int | None = None
    """Train steps that the weights had taken when the candidates were asked for; None outside
    training and for a fixed policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeOutcome:
    """State of the episode where the chosen path ends."""

    success: bool
    """Whether the task was solved."""
    terminated: bool
    """Whether the environment reached a terminal state."""
    truncated: bool
    """Whether a limit ended the episode, or an answer that made the environment fail."""
    returns: Mapping[str, float] = field(default_factory=dict[str, float])
    """Agent to the undiscounted sum of its rewards on the chosen path."""
    num_turns: int = 0
    """Turns that have begun."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutTree:
    """One episode: a path of decisions, each with K candidates of which one was played."""

    episode: int
    """Episode id, unique within a training step."""
    env_seed: int
    """Seed the environment was reset with."""
    initial_state_hash: str
    """Hash of the initial state: equal levels have equal hashes."""
    decisions: tuple[Decision, ...]
    """Decisions in play order."""
    outcome: TreeOutcome | None
    """Where the chosen path ends; None when the rollout failed."""
    end: End = End.ANSWERED
    """Why the episode is over."""
    cause: str | None = None
    """Error of the infrastructure that ended the rollout; None when there was none."""
    env: str = ""
    """Name of the environment in a run of several; empty in a run of one."""
    stage: int = 0
    """Stage of the curriculum from which the level is, from 0; 0 without a curriculum."""
    num_continuation_tokens: int = 0
    """Tokens sampled for continuations, which `decisions` does not hold."""
    prefix: tuple[Decision, ...] = ()
    """Decisions before the state of another episode from which this one continued; they belong to
    another tree of the level. Empty for an episode from the start."""

    @property
    def has_failed(self) -> bool:
        """Whether the infrastructure failed: then nothing of the rollout may be learnt from."""
        return self.end.kind == "infrastructure"


class TrainingCompletion(NamedTuple):
    """One completion as the update sees it."""

    token_ids: tuple[int, ...]
    """[T] sampled token ids, never re-tokenised text."""
    logprobs: tuple[float, ...]
    """[T] log-probabilities at sampling time, in nats."""
    advantage: float
    """Advantage of every token of the completion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingGroup:
    """One prompt with its completions: the unit of training data."""

    role: str
    """Role that sampled the completions."""
    prompt_ids: tuple[int, ...]
    """Prompt tokens that all completions share."""
    completions: tuple[TrainingCompletion, ...]
    """Completions with their advantages."""
    temperature: float = 1.0
    """Sampling temperature: ratios are taken in the distribution that was sampled."""
    grammar: str = ""
    """Form that the engine enforced, whose tokens alone make up that distribution; empty: none."""


Scores = tuple[tuple[float, ...], ...]
"""Log-probabilities of a group's sampled tokens, in nats: completion, token."""


class ValueExample(NamedTuple):
    """A prompt before a decision, and the return from there on that V is to predict."""

    prompt_ids: tuple[int, ...]
    """Prompt tokens of the decision."""
    target: float
    """Return to predict, in units of reward; `value_examples` defines it."""


class ValueFit(NamedTuple):
    """Statistics of one fit of V."""

    num_examples: int
    """Examples from decisions of the train step, without those of earlier steps."""
    target: float
    """Mean of their targets, in units of reward."""
    r2: float
    """Share of their variance that V explained before it was fitted to them; at most 1."""
    loss: float
    """Mean squared error in the last pass over the examples."""


class Shown(NamedTuple):
    """How a metric appears in the progress view."""

    heading: str
    """Label of its row; the view puts the role, policy or environment before it."""
    style: str
    """Format of the value, such as ``.2f``."""


class Measured(NamedTuple):
    """How a figure of an update is measured, from the `LossTerms` of every micro-batch."""

    over: Literal["steps", "tokens", "maximum", "minimum", "first_step_maximum"]
    """Mean over optimizer steps or over tokens, or an extreme over tokens (of the first step)."""
    of: Callable[[Any], Any]
    """`LossTerms` to a tensor: ``[]`` over steps, else ``[M]`` over the target tokens."""


class RoleGradient(NamedTuple):
    """The gradient of one role's samples in an update of a shared policy."""

    role: str
    """`ROLE`, or `ENV.ROLE` in a run of several environments."""
    norm: float
    """Its norm, a mean over the optimizer steps with samples of the role."""
    share: float
    """Its inner product with the whole gradient, divided by the whole one's squared norm. Shares of
    all roles add up to 1; below 0 the update harms the role, to first order."""
    cosines: Mapping[str, float]
    """Other role to the mean cosine between the two gradients, in [-1, 1]."""


@pydantic_dataclass(
    frozen=True, kw_only=True, slots=True, config=ConfigDict(use_attribute_docstrings=True)
)
class UpdateStats:
    """Statistics of a policy's update in one train step.

    A field with `Measured` is a diagnostic of the loss: it is collected, logged as
    ``loss/<policy>/<field>`` and documented in METRICS.md from its declaration here alone.
    """

    num_groups: int
    """Groups the policy was trained on; 0 means that the update was skipped."""
    num_completions: int = 0
    """Completions the policy was trained on."""
    num_tokens: int = 0
    """Sampled tokens that were trained on; ``tokens/<policy>/learnt``: those with a gradient."""
    num_optimizer_steps: int = 0
    """Optimizer steps."""
    skipped: str | None = None
    """Why nothing was trained on in this step, logged as 1; None, logged as 0, otherwise."""
    loss: Annotated[float, Measured("steps", lambda terms: terms.loss)] = 0.0
    """Loss that is minimised, all terms included."""
    policy_loss: Annotated[float, Measured("steps", lambda terms: terms.policy_loss)] = 0.0
    """Clipped surrogate part of the loss."""
    entropy: Annotated[
        float, Measured("tokens", lambda terms: terms.entropy), Shown("entropy", ".2f")
    ] = 0.0
    """Mean entropy of the next-token distribution, in nats."""
    ratio_mean: Annotated[float, Measured("tokens", lambda terms: terms.ratio)] = 1.0
    """Mean importance ratio of trained tokens, new policy over sampling policy."""
    ratio_max: Annotated[float, Measured("maximum", lambda terms: terms.ratio)] = 1.0
    """Largest importance ratio."""
    first_ratio_error: Annotated[
        float, Measured("first_step_maximum", lambda terms: terms.log_ratio.expm1().abs())
    ] = 0.0
    """Largest distance of a ratio from 1 in the mini-batch of the first optimizer step: engine
    against trainer, unless recomputed."""
    engine_gap_mean: float = 0.0
    """Mean distance of the engine's log-probabilities of sampled tokens from the trainer's before
    the update, in nats; 0 where they are not recomputed; of the first groups where there is one
    optimizer step, which has those of its own forward pass."""
    engine_gap_max: float = 0.0
    """Maximum of the same distance."""
    clip_fraction: Annotated[float, Measured("tokens", lambda terms: terms.is_clipped)] = 0.0
    """Share of tokens whose gradient was removed by the clip."""
    clip_low_fraction: Annotated[
        float, Measured("tokens", lambda terms: terms.is_clipped & (terms.advantages < 0))
    ] = 0.0
    """Share of tokens with a negative advantage whose gradient was removed by the clip."""
    clip_high_fraction: Annotated[
        float, Measured("tokens", lambda terms: terms.is_clipped & (terms.advantages > 0))
    ] = 0.0
    """Share of tokens with a positive advantage whose gradient was removed by the clip."""
    masked_fraction: Annotated[float, Measured("tokens", lambda terms: terms.is_masked)] = 0.0
    """Share of tokens whose gradient was removed by loss.importance_mode = "mask"."""
    flat_fraction: Annotated[float, Measured("tokens", lambda terms: terms.advantages == 0)] = 0.0
    """Share of tokens whose advantage is 0."""
    importance_mean: Annotated[float, Measured("tokens", lambda terms: terms.importance)] = 1.0
    """Mean importance weight of tokens, trainer over engine (loss.importance_cap); 1 without."""
    importance_min: Annotated[float, Measured("minimum", lambda terms: terms.importance)] = 1.0
    """Smallest importance weight of a token."""
    importance_max: Annotated[float, Measured("maximum", lambda terms: terms.importance)] = 1.0
    """Largest importance weight of a token."""
    kl: Annotated[float, Measured("tokens", lambda terms: terms.kl)] = 0.0
    """Mean estimated KL divergence of the new policy from the reference; 0 without a reference."""
    kl_coefficient: float = 0.0
    """Weight of the KL penalty in the update; constant without loss.kl_target."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus in the update; constant without loss.entropy_target."""
    approx_kl: Annotated[
        float, Measured("tokens", lambda terms: terms.log_ratio.expm1() - terms.log_ratio)
    ] = 0.0
    """Mean k3 estimate of the KL divergence of the sampling policy from the present one, before
    each optimizer step: 0 where there is one. Of tokens, also where the ratio is a sequence's."""
    update_kl: float = 0.0
    """Mean k3 estimate of the KL divergence of the policy before the update from the one after it,
    in nats per token, on a sample of its tokens."""
    grad_norm: float = 0.0
    """Mean gradient norm before clipping."""
    learning_rate: float = 0.0
    """Learning rate of the last optimizer step."""
    role_gradients: tuple[RoleGradient, ...] = ()
    """Gradients of its roles, with optimizer.role_gradients for a policy of several; else empty."""


STATS_FIELDS: Mapping[str, FieldInfo] = {
    name: field
    for name, field in vars(UpdateStats)["__pydantic_fields__"].items()
    if name != "role_gradients"
}
"""The numbers of `UpdateStats`: docstring, `Measured` and `Shown` of each."""


class Demonstration(NamedTuple):
    """A prompt and the answer to imitate."""

    prompt_ids: tuple[int, ...]
    """Token ids of the prompt, as the policy will see it when it plays."""
    completion_ids: tuple[int, ...]
    """Token ids of the answer, the end token included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imitation:
    """How a policy is fitted to demonstrations."""

    num_steps: int
    """Optimizer steps."""
    batch_size: int
    """Demonstrations per step."""
    learning_rate: float
    """Learning rate of the first step; it falls linearly to a tenth."""
    seed: int
    """Decides the order of the demonstrations."""


class ImitationStep(NamedTuple):
    """Statistics of one supervised step."""

    step: int
    """Number of the step, from 0."""
    loss: float
    """Mean negative log-likelihood per completion token before the step, in nats."""
    grad_norm: float
    """Norm of the gradient before clipping."""
