"""What there is to know about a loss: sums and maxima over tokens, micro-batches and ranks.

Legend: M target tokens of a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pettingllms_trainers.types import STATS_FIELDS, Measured, RoleGradient


class LossTerms(NamedTuple):
    """What diagnostics are made from: the loss of a micro-batch, and values per token."""

    loss: Tensor
    """``[]`` with all its parts, already weighted."""
    policy_loss: Tensor
    """``[]`` its clipped surrogate part."""
    entropy: Tensor
    """``[M]`` in nats."""
    log_ratio: Tensor
    """``[M]`` of each token, new policy over sampling policy; the objective may use another."""
    ratio: Tensor
    """``[M]`` ratios of the objective, before clipping."""
    importance: Tensor
    """``[M]`` weights for what the engine and not the trainer has drawn; ones without any."""
    advantages: Tensor
    """``[M]``."""
    is_masked: Tensor
    """``[M]`` whether such a weight of 0 removed the gradient."""
    is_clipped: Tensor
    """``[M]`` whether the clip removed the gradient, of tokens that are not masked."""
    kl: Tensor
    """``[M]`` estimated KL to the reference; zeros without one."""


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
    """Sum or maximum of each field of `UpdateStats` that is measured, in order."""
    num_tokens: int = 0
    """Tokens that these are over."""

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
        """Return what was collected."""
        if not self._rows:
            return StepDiagnostics()
        rows = torch.stack(self._rows)  # [micro-batches, measured fields]
        values = torch.where(torch.tensor(_IS_SUM, device=rows.device), rows.sum(0), rows.amax(0))
        return StepDiagnostics(tuple(values.tolist()), self._num_tokens)


def update_figures(steps: Sequence[StepDiagnostics]) -> dict[str, Any]:
    """Return the measured fields of `UpdateStats` from the optimizer steps of an update."""
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


Products = Mapping[tuple[str, str], float]
"""Inner products of the gradients of all pairs of roles of an optimizer step, in both orders; the
gradients of roles add up to that of the mini-batch."""


def role_figures(steps: Sequence[Products]) -> tuple[RoleGradient, ...]:
    """Return the figures of each role over the optimizer steps of an update.

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
    """Return the mean over the steps in which both have a gradient; None without any."""
    found = [
        products[role, other] / math.sqrt(products[role, role] * products[other, other])
        for products in steps
        if other != role and products.get((other, other), 0.0) * products[role, role] > 0
    ]
    return fmean(found) if found else None
