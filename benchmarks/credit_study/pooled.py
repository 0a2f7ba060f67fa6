"""Shares of several seeds, pooled."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms.evaluation.statistics import wilson_interval

__all__ = ["pooled"]


def pooled(found: Sequence[tuple[float, int]]) -> str:
    """Return the share of all levels that are solved, with its Wilson interval.

    Args:
        found: By seed: the share of levels solved, and how many levels there were.
    """
    num = sum(levels for _, levels in found)
    share = sum(share * levels for share, levels in found) / num
    low, high = wilson_interval(share, num)
    return f"{100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f})"
