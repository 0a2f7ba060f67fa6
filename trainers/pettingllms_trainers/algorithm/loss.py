"""The clipped policy loss of sampled tokens, and what there is to know about it.

Legend: M target tokens of a micro-batch, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pettingllms_trainers.algorithm.batch import Targets
from pettingllms_trainers.config import LossConfig

__all__ = [
    "Diagnostics",
    "StepDiagnostics",
    "TokenStatistics",
    "kl_estimate",
    "policy_loss",
    "token_statistics",
]

_MAX_LOG_RATIO = 20.0
_MIN_LOGPROB = -1e4


class TokenStatistics(NamedTuple):
    """What the loss needs of the logits, per token."""

    logprobs: Tensor
    """``[M]`` log-probability of the target."""
    entropy: Tensor
    """``[M]`` entropy of the distribution, in nats."""


class _TokenStatistics(torch.autograd.Function):
    """Log-probabilities and entropies that keep one ``[M, V]`` tensor for the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        # Excluded tokens have -inf; p log p is 0 there, but 0 * -inf is not.
        logprobs = logits.log_softmax(-1).clamp_(min=_MIN_LOGPROB)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        ctx.save_for_backward(logprobs, targets, entropy)
        return logprobs.gather(1, targets[:, None]).squeeze(1), entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, None]:
        logprobs, targets, entropy = ctx.saved_tensors
        of_target, of_entropy = gradients
        factor = torch.zeros_like(entropy) if of_target is None else -of_target
        result = logprobs.exp()
        if of_entropy is None:
            result.mul_(factor[:, None])
        else:
            constant = (factor - of_entropy * entropy)[:, None]
            result.mul_(torch.addcmul(constant, logprobs, -of_entropy[:, None]))
        if of_target is not None:
            result.scatter_add_(1, targets[:, None], of_target[:, None])
        return result, None


def token_statistics(
    logits: Tensor, token_ids: Tensor, temperatures: Tensor | None = None
) -> TokenStatistics:
    """Return log-probabilities of tokens and entropies, in the distribution that was sampled.

    Args:
        logits: ``[M, V]``.
        token_ids: ``[M]``.
        temperatures: ``[M]`` sampling temperatures; None when all are 1.
    """
    logits = logits.float()
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
    """Return an estimate per token of KL(policy || reference), from tokens of the policy.

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


class StepDiagnostics(NamedTuple):
    """What is known about an optimizer step, or about one rank's share of it."""

    sums: tuple[float, ...] = (0.0,) * 7
    """Loss and its policy part, then sums of entropy, ratio, clipped, KL and approximate KL."""
    num_tokens: int = 0
    """Tokens that the sums are over."""
    ratio_max: float = 0.0
    """Largest ratio."""
    ratio_error: float = 0.0
    """Largest distance of a ratio from 1."""

    @classmethod
    def merged(cls, parts: Sequence[StepDiagnostics]) -> StepDiagnostics:
        """Return those of several parts together."""
        return cls(
            sums=tuple(map(sum, zip(*(part.sums for part in parts), strict=True))),
            num_tokens=sum(part.num_tokens for part in parts),
            ratio_max=max(part.ratio_max for part in parts),
            ratio_error=max(part.ratio_error for part in parts),
        )


class Diagnostics:
    """Collects micro-batches of an optimizer step; on the device until read, to save waiting."""

    def __init__(self) -> None:
        self._sums: list[Tensor] = []
        self._extremes: list[Tensor] = []
        self._num_tokens = 0

    def add(self, sums: Sequence[Tensor], ratio: Tensor) -> None:
        """Add a micro-batch: sums in the order of `StepDiagnostics`, and ratios ``[M]``."""
        self._sums.append(torch.stack([value.detach().float() for value in sums]))
        self._extremes.append(torch.stack([ratio.max(), (ratio - 1).abs().max()]).detach())
        self._num_tokens += len(ratio)

    def total(self) -> StepDiagnostics:
        """Return what was collected."""
        if not self._sums:
            return StepDiagnostics()
        ratio_max, ratio_error = torch.stack(self._extremes).amax(0).tolist()
        sums = torch.stack(self._sums).sum(0).tolist()
        return StepDiagnostics(tuple(sums), self._num_tokens, ratio_max, ratio_error)


def policy_loss(
    statistics: TokenStatistics,
    targets: Targets,
    config: LossConfig,
    diagnostics: Diagnostics | None = None,
) -> Tensor:
    """Return the loss of a micro-batch: its share of the loss of its mini-batch.

    Per token: ``-min(r A, clip(r, 1 - low, 1 + high) A)``, minus the entropy bonus, plus the KL
    penalty; summed with the weights of the targets.

    Args:
        statistics: Of the present policy, with gradient.
        targets: The sampled tokens.
        config: Clip range, coefficients, estimator.
        diagnostics: Gets the sums of this micro-batch.

    Source: PPO (arXiv 1707.06347, eq. 7); the higher upper limit of DAPO (arXiv 2503.14476, section
        3.1); truncated importance sampling, a factor ``min(trainer / engine, cap)`` without
        gradient: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
        training". Changed: the log-ratio is cut at +-20 so that no product is infinite.
    """
    old = targets.logprobs if targets.old_logprobs is None else targets.old_logprobs
    ratio = (statistics.logprobs - old).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    clipped_ratio = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    surrogate = torch.minimum(ratio * targets.advantages, clipped_ratio * targets.advantages)
    if config.importance_cap and targets.old_logprobs is not None:
        engine = (old - targets.logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
        surrogate = surrogate * engine.exp().clamp(max=config.importance_cap)
    loss = policy_part = -(surrogate * targets.weights).sum()
    if config.entropy_coefficient:
        loss = loss - config.entropy_coefficient * (statistics.entropy * targets.weights).sum()
    kl = torch.zeros_like(ratio)
    if targets.reference_logprobs is not None:
        kl = kl_estimate(statistics.logprobs, targets.reference_logprobs, config.kl_estimator)
        loss = loss + config.kl_coefficient * (kl * targets.weights).sum()
    if diagnostics is not None:
        with torch.no_grad():
            is_cut = torch.where(
                targets.advantages > 0, ratio > clipped_ratio, ratio < clipped_ratio
            )
            is_cut &= targets.advantages != 0
            sums = [
                loss,
                policy_part,
                statistics.entropy.sum(),
                ratio.sum(),
                is_cut.sum(),
                kl.sum(),
            ]
            sums.append((ratio - 1 - ratio.log()).sum())
            diagnostics.add(sums, ratio)
    return loss
