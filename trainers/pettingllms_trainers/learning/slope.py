"""Does who leads now win in the end? A regression within the episodes of a level, over train steps.

Legend: x, what an episode has earned so far; y, 1 if it is solved in the end and 0 if not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

_NOTHING = 1e-12
"""Sums of squares below this are rounding: there is nothing to compare."""


class Slope(NamedTuple):
    """Sums of a least squares regression of y on x, each centred within its group."""

    num: float = 0.0
    """Degrees of freedom: members of all groups, less one per group."""
    xx: float = 0.0
    """Sum of the squares of x."""
    xy: float = 0.0
    """Sum of the products."""
    yy: float = 0.0
    """Sum of the squares of y."""

    def kept(self, share: float) -> Slope:
        """Return the same evidence with a share of its weight, which leaves the slope as it is."""
        return Slope(*(share * value for value in self))

    def with_group(self, xs: Sequence[float], ys: Sequence[float]) -> Slope:
        """Return the evidence with that of a group.

        Args:
            xs: [N] at least one.
            ys: [N]
        """
        x_mean, y_mean = fmean(xs), fmean(ys)
        pairs = [(x - x_mean, y - y_mean) for x, y in zip(xs, ys, strict=True)]
        return Slope(
            self.num + len(pairs) - 1,
            self.xx + math.fsum(x * x for x, _ in pairs),
            self.xy + math.fsum(x * y for x, y in pairs),
            self.yy + math.fsum(y * y for _, y in pairs),
        )

    @property
    def t(self) -> float | None:
        """The slope in units of its standard error; None where x or y has never differed."""
        if self.xx < _NOTHING or self.yy < _NOTHING or self.num <= 1:
            return None
        # A perfect fit has no residual: the bound stands in for it, and t is large, not infinite.
        residual = max(self.yy - self.xy**2 / self.xx, _NOTHING)
        return self.xy / math.sqrt(self.xx * residual / (self.num - 1))

    def may_be(self, correlation: float, errors: float = 2.0) -> bool:
        """Return whether the evidence leaves room for x to speak for y.

        Without evidence it does. With little, it does unless the correlation is surely below the
        one that is asked for; with much, a weaker one will do if it is surely above 0.

        Args:
            correlation: The weakest that counts while it is uncertain, in (0, 1).
            errors: Standard errors that make an estimate sure.
        """
        if self.t is None:
            return True
        found = self.xy / math.sqrt(self.xx * self.yy)
        return self.t > errors or found + errors / math.sqrt(self.num) > correlation
