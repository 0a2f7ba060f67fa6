"""Does who leads now win in the end? A test over levels, and over train steps.

Legend: N episodes of a level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from pettingllms_trainers.learning.advantage import has_signal

_SURE = 2.0
"""Standard errors above 0."""


class Evidence(NamedTuple):
    """Sums over levels, in each of which leads are compared with success.

    Only within a level, so that easy ones, which pay more and are solved more often, say nothing.
    Where leads mean nothing, one answer in forty is wrong. The variance is exact where episodes
    lead from the first turn to the last, and too small where many end early.

    Source:
        Mantel's extension of the test of Mantel and Haenszel (Journal of the American Statistical
        Association 58, 1963): levels are its strata, and leads its scores. Changed: earlier train
        steps count less.
    """

    total: float = 0.0
    """Sum of the products of lead and success, each centred within its level."""
    variance: float = 0.0
    """Of that sum, if it were drawn at random which of a level's episodes are solved."""
    num_solved: float = 0.0
    """Episodes that were solved; earlier train steps count less."""

    def kept(self, share: float) -> Evidence:
        """Return the same evidence with a share of its weight."""
        return Evidence(share * self.total, share**2 * self.variance, share * self.num_solved)

    def with_level(self, leads: Sequence[float], solved: Sequence[bool]) -> Evidence:
        """Return the evidence with that of a level.

        Args:
            leads: [N] by how much each episode was ahead of the others.
            solved: [N]
        """
        num_solved = self.num_solved + sum(solved)
        if not has_signal(leads):
            return self._replace(num_solved=num_solved)
        xs, ys = _centred(leads), _centred(solved)
        variance = _product(xs, xs) * _product(ys, ys) / (len(xs) - 1)
        return Evidence(self.total + _product(xs, ys), self.variance + variance, num_solved)

    @property
    def z(self) -> float | None:
        """The sum in units of its standard error; None where leads or successes never differed."""
        return self.total / math.sqrt(self.variance) if self.variance > 0 else None

    @property
    def can_tell(self) -> bool:
        """Whether success was there of late, and leads to compare it with."""
        return self.z is not None and self.num_solved >= 1

    @property
    def is_shown(self) -> bool:
        """Whether those that lead are surely solved more often."""
        return self.z is not None and self.z > _SURE


def _centred(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _product(xs: Sequence[float], ys: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(xs, ys, strict=True))
