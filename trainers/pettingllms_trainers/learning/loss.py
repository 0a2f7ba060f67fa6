"""The clipped policy loss of sampled tokens, its coefficients and its statistics.

Legend: M target tokens of a micro-batch, V vocabulary size, W = ceil(V / 32).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pettingllms_trainers.config import LossConfig
from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.learning.batch import Targets
from pettingllms_trainers.types import (
    STATS_FIELDS,
    Measured,
    RoleGradient,
    Scores,
    TrainingGroup,
)

_MAX_LOG_RATIO = 20.0
"""Ratios are kept finite: exp(20) is 5e8, and a product with an advantage stays in float32."""
_MIN_LOGPROB = -1e4
"""In place of -inf, so that p log p of excluded tokens is 0 and not NaN."""
_CACHED_LOGITS = 1 << 18
"""Logits that stay in the cache of a CPU with what is made of them; measured."""
_MIN_PROBABILITY = 1e-37
"""In place of 0, for the same reason."""


class TokenStatistics(NamedTuple):
    """What the loss needs of the logits, per token."""

    logprobs: Tensor
    """``[M]`` log-probability of the target."""
    entropy: Tensor
    """``[M]`` entropy of the distribution, in nats."""


MicroLoss = Callable[[TokenStatistics, Targets], Tensor]
"""Statistics and targets of a micro-batch to its share of the loss of the mini-batch."""


class _TokenStatistics(torch.autograd.Function):
    """Log-probabilities and entropies that keep one ``[M, V]`` tensor for the backward pass.

    It becomes the gradient: a second backward pass through the same graph is an error.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        probabilities, chosen = torch.empty_like(logits), logits.new_empty(len(logits))
        entropy = torch.empty_like(chosen)
        # On a CPU, as many rows at once as stay in its cache between the passes over them.
        size = max(1, _CACHED_LOGITS // logits.shape[1]) if logits.is_cpu else len(logits)
        for rows in (slice(i, i + size) for i in range(0, len(logits), size)):
            # Excluded tokens have -inf; p log p is 0 there, but 0 * -inf is not.
            logprobs = logits[rows].log_softmax(-1).clamp_(min=_MIN_LOGPROB)
            chosen[rows] = logprobs.gather(1, targets[rows, None]).squeeze(1)
            torch.exp(logprobs, out=probabilities[rows])
            entropy[rows] = -logprobs.mul_(probabilities[rows]).sum(-1)
        ctx.save_for_backward(probabilities, targets, entropy)
        return chosen, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, None]:
        # With p = softmax(x): d log p[t] / dx = onehot(t) - p, and dH / dx = -p * (log p + H).
        probabilities, targets, entropy = ctx.saved_tensors  # [M, V], [M], [M]
        of_target, of_entropy = gradients
        factor = torch.zeros_like(entropy) if of_target is None else -of_target
        if of_entropy is None:
            result = probabilities.mul_(factor[:, None])
        else:
            logprobs = probabilities.clamp(min=_MIN_PROBABILITY).log_()
            constant = (factor - of_entropy * entropy)[:, None]
            slope = torch.addcmul(constant, logprobs, -of_entropy[:, None], out=logprobs)
            result = probabilities.mul_(slope)
        if of_target is not None:
            result.scatter_add_(1, targets[:, None], of_target[:, None])
        return result, None


def token_statistics(
    logits: Tensor,
    token_ids: Tensor,
    temperatures: Tensor | None = None,
    masks: Tensor | None = None,
) -> TokenStatistics:
    """Return log-probabilities of tokens and entropies, in the distribution that was sampled.

    Args:
        logits: ``[M, V]``.
        token_ids: ``[M]``.
        temperatures: ``[M]`` sampling temperatures; None when all are 1.
        masks: ``[M, W]`` what each token was sampled from, see `masked`; None: all tokens.
    """
    logits = logits.float()
    if masks is not None:
        logits = masked(logits, masks)
    if temperatures is not None:
        logits = logits / temperatures[:, None]
    return TokenStatistics(*_TokenStatistics.apply(logits, token_ids))  # type: ignore[misc]


_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    # Its own gradient has mean 0 on policy, so it borrows that of k2.
    "k1": lambda log_ratio: log_ratio.square() / 2 - (log_ratio.square() / 2 + log_ratio).detach(),
    "k2": lambda log_ratio: log_ratio.square() / 2,
    "k3": lambda log_ratio: log_ratio.expm1() - log_ratio,
}


def kl_estimate(logprobs: Tensor, reference: Tensor, estimator: str) -> Tensor:
    """An estimate per token of KL(policy || reference), from tokens of the policy.

    Args:
        logprobs: ``[M]`` of the policy.
        reference: ``[M]`` of the reference.
        estimator: ``k1``: log-ratio, unbiased, with the gradient of k2; ``k2``: half its square,
            biased, with the right gradient on policy; ``k3``: ``r - 1 - log r``, unbiased and never
            negative, with a gradient that is right near the reference only.

    Source: Schulman 2020, "Approximating KL divergence"; k3 in GRPO (arXiv 2402.03300, eq. 4).
        Changed: the gradient of k1, as a penalty with the plain one would do nothing.
    """
    log_ratio = (reference - logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return _ESTIMATORS[estimator](log_ratio)


def mean_kl(logprobs: Sequence[Sequence[float]], new_logprobs: Sequence[Sequence[float]]) -> float:
    """The mean k3 estimate per token of KL(policy || new policy), from tokens of the policy.

    Args:
        logprobs: Of the policy: completion, token.
        new_logprobs: Of the same tokens in the new policy.
    """
    before, after = (
        torch.tensor([value for part in parts for value in part])
        for parts in (logprobs, new_logprobs)
    )
    return float(kl_estimate(before, after, "k3").mean())


class LossTerms(NamedTuple):
    """The loss of a micro-batch and its values per token, from which diagnostics are made."""

    loss: Tensor
    """``[]`` loss with all its terms, already weighted."""
    policy_loss: Tensor
    """``[]`` clipped surrogate alone."""
    entropy: Tensor
    """``[M]`` entropies, in nats."""
    log_ratio: Tensor
    """``[M]`` log-ratio of each token, present policy over sampling policy, whatever ratio the
    objective has."""
    ratio: Tensor
    """``[M]`` ratios of the objective, before clipping."""
    importance: Tensor
    """``[M]`` importance weights, trainer over engine; ones without."""
    advantages: Tensor
    """``[M]`` advantages."""
    is_masked: Tensor
    """``[M]`` whether an importance weight of 0 removed the gradient."""
    is_clipped: Tensor
    """``[M]`` whether the clip removed the gradient, of tokens that are not masked."""
    kl: Tensor
    """``[M]`` estimated KL divergence from the reference; zeros without one."""


_MEASURED: dict[str, Measured] = {
    name: marker
    for name, field in STATS_FIELDS.items()
    for marker in field.metadata
    if isinstance(marker, Measured)
}
_IS_SUM = [measured.over in ("steps", "tokens") for measured in _MEASURED.values()]


class StepDiagnostics(NamedTuple):
    """The diagnostics of an optimizer step, or of one rank's share of it."""

    values: tuple[float, ...] = (0.0,) * len(_MEASURED)
    """Sum or maximum of each `Measured` field of `UpdateStats`, in order; minima are negated."""
    num_tokens: int = 0
    """Target tokens that they are over."""

    @classmethod
    def merged(cls, parts: Sequence[StepDiagnostics]) -> StepDiagnostics:
        """Return those of several parts together."""
        # A rank may have had no tokens: its zeros are no maximum of anything.
        found = [part for part in parts if part.num_tokens] or parts
        columns = zip(*(part.values for part in found), strict=True)
        return cls(
            values=tuple(
                sum(column) if is_sum else max(column)
                for is_sum, column in zip(_IS_SUM, columns, strict=True)
            ),
            num_tokens=sum(part.num_tokens for part in parts),
        )


class Diagnostics:
    """Collects micro-batches of an optimizer step.

    Values stay on the device until they are read: each read would wait for the GPU.
    """

    def __init__(self) -> None:
        self._rows: list[Tensor] = []
        self._num_tokens = 0

    @torch.no_grad()
    def add(self, terms: LossTerms) -> None:
        """Add a micro-batch."""
        values = [
            -measured.of(terms) if measured.over == "minimum" else measured.of(terms).float()
            for measured in _MEASURED.values()
        ]
        reduced = [
            value.sum() if is_sum else value.max()
            for is_sum, value in zip(_IS_SUM, values, strict=True)
        ]
        self._rows.append(torch.stack(reduced))
        self._num_tokens += len(terms.ratio)

    def total(self) -> StepDiagnostics:
        """What was collected."""
        if not self._rows:
            return StepDiagnostics()
        rows = torch.stack(self._rows)  # [micro-batches, measured fields]
        values = torch.where(torch.tensor(_IS_SUM, device=rows.device), rows.sum(0), rows.amax(0))
        return StepDiagnostics(tuple(values.tolist()), self._num_tokens)


def update_figures(steps: Sequence[StepDiagnostics]) -> dict[str, Any]:
    """The measured fields of `UpdateStats` from the optimizer steps of an update."""
    # Sums are divided here, once: means of means would weigh small micro-batches too much.
    whole = StepDiagnostics.merged(steps)
    figures: dict[str, float] = {}
    for index, (name, measured) in enumerate(_MEASURED.items()):
        figures[name] = {
            "steps": whole.values[index] / len(steps),
            "tokens": whole.values[index] / whole.num_tokens,
            "maximum": whole.values[index],
            "minimum": -whole.values[index],
            "first_step_maximum": steps[0].values[index],
        }[measured.over]
    return figures


def _bounded_exp(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()


def _of_completion(values: Tensor, completions: Tensor, *, is_mean: bool) -> Tensor:
    """Return ``[M]``: the sum, or the mean, of values over the completion of each token."""
    num = int(completions.max()) + 1
    sums = values.new_zeros(num).index_add(0, completions, values)
    if is_mean:
        sums = sums / torch.bincount(completions, minlength=num)
    return sums[completions]


def _surrogate(
    ratio: Tensor, logprobs: Tensor, advantages: Tensor, config: LossConfig
) -> tuple[Tensor, Tensor]:
    """What is maximised per token, and where it has no gradient; both ``[M]``."""
    if config.objective == "cispo":
        weight = ratio.detach().clamp(max=1 + config.clip_high)
        return weight * advantages * logprobs, torch.zeros_like(ratio, dtype=torch.bool)
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    is_clipped = torch.where(advantages > 0, ratio > clipped, ratio < clipped) & (advantages != 0)
    if config.dual_clip:
        is_far = (advantages < 0) & (ratio > config.dual_clip)
        surrogate = torch.where(is_far, config.dual_clip * advantages, surrogate)
        is_clipped = is_clipped | is_far
    return surrogate, is_clipped


def _importance(log_weight: Tensor, targets: Targets, config: LossConfig) -> Tensor:
    """Return ``[M]`` weights for tokens that another distribution has drawn; no gradient."""
    if config.importance_level == "sequence":
        log_weight = _of_completion(log_weight, targets.completions, is_mean=False)
    weight = _bounded_exp(log_weight)
    if config.importance_mode == "truncate":
        return weight.clamp(max=config.importance_cap)
    is_kept = (weight <= config.importance_cap) & (weight >= config.importance_floor)
    return weight * is_kept


def policy_loss(
    statistics: TokenStatistics,
    targets: Targets,
    config: LossConfig,
    diagnostics: Diagnostics | None = None,
) -> Tensor:
    """The loss of a micro-batch: its share of the loss of its mini-batch.

    Per token: ``-min(r A, clip(r, 1 - low, 1 + high) A)``, or another objective, minus the entropy
    bonus, plus the KL penalty; summed with the weights of the targets.

    Args:
        statistics: Of the present policy, with gradient.
        config: Objective, ranges, coefficients, estimator.

    Source: PPO (arXiv 1707.06347, eq. 7); the higher upper limit of DAPO (arXiv 2503.14476, section
        3.1); truncated importance sampling, a factor ``min(trainer / engine, cap)`` without
        gradient: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
        training"; KL times the ratio: DeepSeek-V3.2 (arXiv 2512.02556, section 3.1); for other
        objectives and weights see `LossConfig`. Changed: the log-ratio is cut at +-20 so that no
        product is infinite.
    """
    old = targets.logprobs if targets.old_logprobs is None else targets.old_logprobs
    # All [M]. Weights add up to the share of this micro-batch, so losses of micro-batches add up.
    log_ratio = ratio_log = statistics.logprobs - old
    if config.ratio == "sequence":
        ratio_log = _of_completion(log_ratio, targets.completions, is_mean=True)
    ratio = _bounded_exp(ratio_log)
    importance = torch.ones_like(ratio)
    surrogate, is_clipped = _surrogate(ratio, statistics.logprobs, targets.advantages, config)
    if config.importance_cap and targets.old_logprobs is not None:
        # Tokens were drawn by the engine, while the ratio above is to the trainer's probabilities:
        # this factor, without gradient, accounts for the difference.
        importance = _importance(old - targets.logprobs, targets, config)
        surrogate = surrogate * importance
    loss = policy_part = -(surrogate * targets.weights).sum()
    if config.entropy_coefficient:
        loss = loss - config.entropy_coefficient * (statistics.entropy * targets.weights).sum()
    kl = torch.zeros_like(ratio)
    if targets.reference_logprobs is not None:
        kl = kl_estimate(statistics.logprobs, targets.reference_logprobs, config.kl_estimator)
        if config.use_bias_correction_kl:
            # With gradient: the mean over tokens of the old policy is then the KL of the new one.
            kl = kl * ratio
        loss = loss + config.kl_coefficient * (kl * targets.weights).sum()
    if diagnostics is not None:
        is_masked = (importance == 0) & (targets.advantages != 0)
        diagnostics.add(
            LossTerms(
                loss=loss,
                policy_loss=policy_part,
                entropy=statistics.entropy,
                log_ratio=log_ratio.detach().clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO),
                ratio=ratio,
                importance=importance,
                advantages=targets.advantages,
                is_masked=is_masked,
                is_clipped=is_clipped & ~is_masked,
                kl=kl,
            )
        )
    return loss


def masked(logits: Tensor, masks: Tensor) -> Tensor:
    """Logits with -inf in place of those of excluded tokens.

    Args:
        logits: ``[M, V]``.
        masks: ``[M, W]`` int32; bit ``v % 32`` of word ``v // 32`` says whether token v is allowed,
            as in xgrammar and vLLM.
    """
    # Bytes, the lowest first, rather than words: what is unpacked takes a quarter of the logits.
    octets = masks.view(torch.uint8)[:, :, None]  # [M, 4 W, 1]
    bits = torch.arange(8, dtype=torch.uint8, device=masks.device)
    allowed = (octets >> bits & 1).bool().flatten(1)[:, : logits.shape[1]]
    return logits.masked_fill(~allowed, -torch.inf)


def mismatch(
    groups: Sequence[TrainingGroup], scores: Sequence[Scores], limit: float
) -> tuple[float, float]:
    """The train-inference mismatch: mean and maximum distance of log-probabilities.

    Args:
        groups: With the log-probabilities of the engine.
        scores: Those of the trainer, by group.
        limit: Highest mean, in nats.

    Raises:
        UpdateError: The mean is above the limit.
    """
    engine = [value for group in groups for c in group.completions for value in c.logprobs]
    trainer = [value for score in scores for part in score for value in part]
    return _checked(torch.tensor(trainer), torch.tensor(engine), limit)


def with_mismatch_check(loss: MicroLoss, limit: float) -> MicroLoss:
    """A loss that first makes sure that the engine had the weights of the trainer.

    For the first optimizer step of an update whose ratios are to the engine's log-probabilities:
    its forward pass computes those of the trainer anyway.

    Args:
        limit: As for `mismatch`, whose error it raises.
    """

    def checked(statistics: TokenStatistics, targets: Targets) -> Tensor:
        _checked(statistics.logprobs, targets.logprobs, limit)
        return loss(statistics, targets)

    return checked


def with_own_denominators(loss: MicroLoss) -> MicroLoss:
    """A loss whose ratios are to the log-probabilities of its own forward pass: 1, with gradient.

    For the only optimizer step of an update, which no step has moved away from what sampled.
    """

    def own(statistics: TokenStatistics, targets: Targets) -> Tensor:
        return loss(statistics, replace(targets, old_logprobs=statistics.logprobs.detach()))

    return own


def _checked(trainer: Tensor, engine: Tensor, limit: float) -> tuple[float, float]:
    distances = (trainer.detach() - engine).abs()
    mean = float(distances.mean())
    if mean > limit:  # one that is not finite is reported by the step
        raise UpdateError(
            f"update: the engine's log-probabilities are {mean:.3g} nats from the trainer's on "
            f"average, allowed are {limit:g} (engine.max_logprob_gap). The engine has other "
            "weights, or computes otherwise: restart it with the model of this run; nothing was "
            "trained"
        )
    return mean, float(distances.max())


_MAX_ERROR = 0.2
"""The KL coefficient changes by a fifth at most from one update to the next."""
ENTROPY_STEP = 0.005
"""By so much the entropy coefficient changes from one update to the next."""
_MAX_ENTROPY_COEFFICIENT = 1.0


class LossCoefficients(NamedTuple):
    """Coefficients in effect in the next update, which follow what was measured in the last one.

    Source:
        KL: the adaptive controller of Ziegler et al. (arXiv 1909.08593, section 2.2). Changed: its
        gain is 1 instead of 0.1, since an update here is a whole train step and runs have hundreds.
        Entropy: adaptive control of Skywork-OR1 (arXiv 2505.22312), with its step of 0.005; the
        option of TRL. Changed: one decision per update, from the entropy of the whole update.
    """

    kl: float
    entropy: float
    is_entropy_low: bool = True
    """Whether the last entropy was at its target or below it; if not, the bonus is off."""

    @classmethod
    def of(cls, config: LossConfig) -> LossCoefficients:
        """Those of the first update: what the run file says."""
        return cls(config.kl_coefficient, config.entropy_coefficient)

    def applied(self, config: LossConfig) -> LossConfig:
        """The loss with these coefficients."""
        bonus = self.entropy if self.is_entropy_low else 0.0
        return config.model_copy(update={"kl_coefficient": self.kl, "entropy_coefficient": bonus})

    def adapted(self, config: LossConfig, *, kl: float, entropy: float) -> LossCoefficients:
        """The coefficients after an update in which these were in effect.

        Args:
            config: Targets; what has none stays as it is.
            kl: Mean KL to the reference that was measured, in nats per token.
            entropy: Mean entropy that was measured, in nats.
        """
        adapted = self
        if config.kl_target:
            # Relative: coefficients of any size take as many updates to double.
            error = (kl - config.kl_target) / config.kl_target
            error = min(max(error, -_MAX_ERROR), _MAX_ERROR)
            adapted = adapted._replace(kl=self.kl * (1 + error))
        if config.entropy_target:
            is_low = entropy <= config.entropy_target
            moved = self.entropy + (ENTROPY_STEP if is_low else -ENTROPY_STEP)
            moved = min(max(moved, 0.0), _MAX_ENTROPY_COEFFICIENT)
            adapted = adapted._replace(entropy=moved, is_entropy_low=is_low)
        return adapted


@torch.no_grad()
def moved_reference(
    reference: Mapping[str, Tensor], weights: Mapping[str, Tensor], mix: float
) -> dict[str, Tensor]:
    """The weights of a reference that has moved towards the policy.

    Args:
        reference: Name to weight.
        weights: Of the policy: the same names and shapes.
        mix: Share of the policy's weights, in (0, 1].

    Source:
        TR-DPO (arXiv 2404.09656, eq. 3 and 4): soft updates, and hard ones with a mix of 1; the
        options `ref_model_mixup_alpha` and `ref_model_sync_steps` of TRL.
    """
    return {name: torch.lerp(old, weights[name], mix) for name, old in reference.items()}


Products = Mapping[tuple[str, str], float]
"""Inner products of the gradients of all pairs of roles of an optimizer step, in both orders; the
gradients of roles add up to that of the mini-batch."""


def role_figures(steps: Sequence[Products]) -> tuple[RoleGradient, ...]:
    """The figures of each role over the optimizer steps of an update.

    Args:
        steps: Of each optimizer step; a role that has no samples in a step is not in it.
    """
    roles = dict.fromkeys(role for products in steps for role, _ in products)
    return tuple(_figures(role, roles, steps) for role in roles)


def _figures(role: str, roles: Mapping[str, None], steps: Sequence[Products]) -> RoleGradient:
    # A role without samples in a step has no gradient there, which is not one of norm 0.
    own = [products for products in steps if (role, role) in products]
    with_whole = math.fsum(p[role, other] for p in own for other in roles if (role, other) in p)
    whole = math.fsum(value for products in steps for value in products.values())
    return RoleGradient(
        role=role,
        norm=fmean(math.sqrt(products[role, role]) for products in own),
        share=with_whole / whole if whole > 0 else 0.0,
        cosines={other: c for other in roles if (c := _cosine(role, other, own)) is not None},
    )


def _cosine(role: str, other: str, steps: Sequence[Products]) -> float | None:
    """The mean over the steps in which both have a gradient; None without any."""
    found = [
        products[role, other] / math.sqrt(products[role, role] * products[other, other])
        for products in steps
        if other != role and products.get((other, other), 0.0) * products[role, role] > 0
    ]
    return fmean(found) if found else None
