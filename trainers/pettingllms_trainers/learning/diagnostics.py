"""What there is to know about a loss: sums and maxima over tokens, micro-batches and ranks.

Legend: M target tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pettingllms_trainers.types import STATS_FIELDS, Measured

__all__ = ["Diagnostics", "LossTerms", "StepDiagnostics", "update_figures"]


class LossTerms(NamedTuple):
    """What diagnostics are made from: the loss of a micro-batch, and values per token."""

    loss: Tensor
    """``[]`` with all its parts, already weighted."""
    policy_loss: Tensor
    """``[]`` its clipped surrogate part."""
    entropy: Tensor
    """``[M]`` in nats."""
    ratio: Tensor
    """``[M]`` importance ratios before clipping."""
    is_clipped: Tensor
    """``[M]`` whether the clip removed the gradient."""
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
        columns = zip(*(part.values for part in parts), strict=True)
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
        values = [measured.of(terms).float() for measured in _MEASURED.values()]
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
    whole = StepDiagnostics.merged(steps)
    figures: dict[str, float] = {}
    for index, (name, measured) in enumerate(_MEASURED.items()):
        figures[name] = {
            "steps": whole.values[index] / len(steps),
            "tokens": whole.values[index] / whole.num_tokens,
            "maximum": whole.values[index],
            "first_step_maximum": steps[0].values[index],
        }[measured.over]
    return figures
