"""Intervals: of shares of several seeds, pooled, of means over seeds, of paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from pettingllms.evaluation.statistics import wilson_interval

_RESAMPLES = 2000


def pooled(found: Sequence[tuple[float, int]]) -> str:
    """Return the share of all levels that are solved, its Wilson interval, and the seeds' range.

    The interval is over levels; seeds differ by more where a run may fall or never begin to learn.

    Args:
        found: By seed: the share of levels solved, and how many levels there were.
    """
    num = sum(levels for _, levels in found)
    share = sum(share * levels for share, levels in found) / num
    low, high = wilson_interval(share, num)
    text = f"{100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f})"
    if len(found) < 2:
        return text
    shares = [100 * share for share, _ in found]
    return f"{text}; {min(shares):.0f} to {max(shares):.0f}"


def interval_of_mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of at least two values, by resampling."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(values, (_RESAMPLES, len(values))).mean(1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def paired(differences: Sequence[float]) -> str:
    """Return the mean of paired differences with a percentile interval over seeds."""
    if len(differences) < 2:  # nothing to resample
        return f"{100 * differences[0]:+.0f}" if differences else "-"
    low, high = interval_of_mean(differences)
    return f"{100 * fmean(differences):+.0f} ({100 * low:+.0f} to {100 * high:+.0f})"
