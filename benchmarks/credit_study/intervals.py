"""Paired differences: alone, and as a family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, stdev

from scipy.special import stdtr

from pettingllms.evaluation.statistics import mean_interval


def paired(differences: Sequence[float]) -> str:
    """The mean of paired differences with its Student t interval (95 %).

    Percentiles of resampled means would be too narrow: with five pairs they hold in 83 % of cases.
    This one does in 88 % where differences themselves are as skewed as an exponential, and as often
    as it says where both sides are. A single difference has no interval.
    """
    if not differences:
        return "-"
    mean, low, high = (100 * end for end in mean_interval(differences))
    return f"{mean:+.0f}" + (f" ({low:+.0f} to {high:+.0f})" if len(differences) > 1 else "")


def p_value(differences: Sequence[float]) -> float:
    """The two-sided p-value of the paired t test: below 0.05 if `paired` excludes 0."""
    error = stdev(differences) / math.sqrt(len(differences))
    if error == 0:  # all the same: they differ from 0 for sure, or not at all
        return float(fmean(differences) == 0)
    return 2 * float(stdtr(len(differences) - 1, -abs(fmean(differences)) / error))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family of comparisons, corrected so that they hold together.

    If those at most 0.05 are taken for real, at most 5 % of families have one that is not.

    Source:
        Holm, "A simple sequentially rejective multiple test procedure" (1979). SciPy has no such
        correction: its `false_discovery_control` bounds another error.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    # Never below a smaller one's: what fails takes all larger ones with it.
    steps = accumulate(((len(order) - rank) * p_values[of] for rank, of in enumerate(order)), max)
    corrected = dict(zip(order, steps, strict=True))
    return [min(1.0, corrected[place]) for place in range(len(p_values))]
