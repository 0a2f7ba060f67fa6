"""Shares, means and differences with confidence intervals. Plain numbers in, plain numbers out.

Plays of one level are not independent; therefore everything here takes one entry per level (or
per episode, for what is counted in episodes) and treats these as the independent draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, correlation, fmean
from typing import Any, NamedTuple

from pettingllms.errors import InvalidArgument, MissingDependency

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An estimate with its confidence interval, of 95 % unless a function is told otherwise."""

    value: float
    low: float
    """Lower end; -inf where there is none."""
    high: float
    """Upper end; inf where there is none."""


def wilson_interval(
    share: float, num_draws: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The Wilson score interval of a share.

    Args:
        share: Observed share, in [0, 1].
        num_draws: Number of independent draws, above 0; need not be whole.
        confidence: In (0, 1).

    Returns:
        Its ends, in [0, 1], around the share.

    Raises:
        InvalidArgument: If the share or the number is out of its range.

    Source:
        Wilson, "Probable inference, the law of succession, and statistical inference" (1927). The
        number may be an effective sample size; for whole ones this equals scipy's.
    """
    if not 0 <= share <= 1:
        raise InvalidArgument("share", share, "a number in [0, 1]")
    if not num_draws > 0:
        raise InvalidArgument("num_draws", num_draws, "a number above 0")
    # Wilson, not the normal approximation: it makes sense at 0 and 1, where many policies end up.
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    scale = 1 + z * z / num_draws
    centre = (share + z * z / (2 * num_draws)) / scale
    spread = share * (1 - share) / num_draws + z * z / (4 * num_draws * num_draws)
    half = z * math.sqrt(spread) / scale
    # At 0 and 1 one end is exactly the share; rounding must not move it past.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def clustered_share(hits: Sequence[float], totals: Sequence[float]) -> Interval:
    """The share `sum(hits) / sum(totals)` with an interval that allows for clusters.

    The Wilson interval is taken at the effective sample size: the number of independent draws
    whose share would vary as much as this one does between clusters. With one draw per cluster it
    is the ordinary Wilson interval.

    Args:
        hits: [C] hits of each cluster, not necessarily whole; `0 <= hits[c] <= totals[c]`.
        totals: [C] draws of each cluster, at least 0.

    Raises:
        InvalidArgument: If there is no draw at all or the lengths differ.

    Source:
        Effective sample size from the linearised variance of a ratio (Korn and Graubard, "Analysis
        of health surveys", 1999), put into Wilson's instead of Clopper and Pearson's interval.
    """
    num_draws = sum(totals)
    if len(hits) != len(totals) or not num_draws > 0:
        raise InvalidArgument("totals", totals, "as many as hits, and at least one draw")
    share = min(1.0, max(0.0, math.fsum(hits) / num_draws))
    # Linearised variance of a ratio: each cluster enters with its distance from the common share.
    deviations = (hit - share * total for hit, total in zip(hits, totals, strict=True))
    variance = math.fsum(d * d for d in deviations) / (num_draws * num_draws)
    if 0 < share < 1 and variance > 0:
        # More than the actual draws would claim information that was not collected (it happens by
        # chance when clusters are more alike than independent draws).
        effective = min(float(num_draws), share * (1 - share) / variance)
    elif 0 < share < 1:
        effective = float(num_draws)
    else:  # all hit or all missed: nothing shows how much plays of one level depend on each other
        # The careful choice: count levels, not plays.
        effective = float(sum(1 for total in totals if total))
    return Interval(share, *wilson_interval(share, effective))


def pass_at_k(num_plays: int, num_solved: int, k: int) -> float:
    """The unbiased estimate of the chance that at least one of k plays solves a level.

    Args:
        num_plays: Plays of the level, at least k.
        num_solved: Those that solved it.
        k: At least 1.

    Raises:
        InvalidArgument: If the numbers do not fit together.

    Source:
        Chen et al., arXiv 2107.03374, equation 1: `1 - C(n - c, k) / C(n, k)`.
    """
    if not 1 <= k <= num_plays or not 0 <= num_solved <= num_plays:
        raise InvalidArgument(
            "plays", (num_plays, num_solved, k), "1 <= k <= num_plays, 0 <= num_solved <= num_plays"
        )
    return 1 - math.comb(num_plays - num_solved, k) / math.comb(num_plays, k)


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The mean of independent values with its Student t interval.

    A single value has no interval: its ends are infinite. Equal values have one without width.

    Args:
        values: The values, at least one.
        confidence: In (0, 1).

    Raises:
        InvalidArgument: If there are no values.
    """
    if not values:
        raise InvalidArgument("values", values, "at least one number")
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean, -math.inf, math.inf)
    if len(set(values)) == 1:  # whose mean may be rounded
        return Interval(values[0], values[0], values[0])
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    quantile = float(special_functions().stdtrit(len(values) - 1, 0.5 + confidence / 2))
    half = quantile * math.sqrt(variance / len(values))
    return Interval(mean, mean - half, mean + half)


def paired_share_difference(first: Interval, second: Interval, correlation: float) -> Interval:
    """The difference of two shares over the same levels, second minus first.

    Args:
        first: Share of one side, as `clustered_share` gives it.
        second: Share of the other side.
        correlation: Of the two sides' shares of solved plays, level by level.

    Source:
        Newcombe, "Improved confidence intervals for the difference between binomial proportions
        based on paired data" (1998), method 10, without its continuity correction; for several
        plays of a level with the Wilson limits of `clustered_share` (the square-and-add rule of
        Zou and Donner, 2008).
    """

    def distance(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one**2 - 2 * correlation * one * other + other**2))

    # Square-and-add: each end combines the two distances that pull the difference its way, reduced
    # by what the paired sides have in common.
    difference = second.value - first.value
    low = difference - distance(second.value - second.low, first.high - first.value)
    high = difference + distance(second.high - second.value, first.value - first.low)
    return Interval(difference, max(-1.0, low), min(1.0, high))


def weighted_sum(weights: Sequence[float], parts: Sequence[Interval]) -> Interval:
    """The sum of independent estimates, each times its weight.

    Args:
        weights: [N] numbers of either sign.
        parts: [N] estimates with intervals of one confidence, which the result has too.

    Source:
        The square-and-add rule of Zou and Donner, "Construction of confidence limits about effect
        measures" (2008). For the difference of two shares with Wilson intervals it is Newcombe's
        hybrid score interval ("Interval estimation for the difference between independent
        proportions", 1998, method 10), for means with t intervals close to Welch's.
    """
    low = high = value = 0.0
    for weight, part in zip(weights, parts, strict=True):
        # A negative weight turns an estimate round: its upper end pulls the sum down.
        ends = sorted((weight * (part.low - part.value), weight * (part.high - part.value)))
        value += weight * part.value
        low += ends[0] ** 2
        high += ends[1] ** 2
    return Interval(value, value - math.sqrt(low), value + math.sqrt(high))


def sign_test(num_better: int, num_worse: int) -> float:
    """The two-sided p-value of the exact sign test (McNemar's, for one play a level).

    Args:
        num_better: Levels on which the second side did better.
        num_worse: Levels on which it did worse. Levels without a difference do not count.
    """
    tail = special_functions().bdtr(min(num_better, num_worse), num_better + num_worse, 0.5)
    return min(1.0, 2 * float(tail))


def correlation_of(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's correlation of paired values; 0 where one side does not vary."""
    # Asked first: around a mean that is rounded, equal values vary, and together with others.
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0
    # Rounding may carry it past 1, where the root of the square-and-add rule is imaginary.
    return max(-1.0, min(1.0, correlation(first, second)))


def special_functions() -> Any:
    """SciPy's distribution functions without its slower `scipy.stats`.

    Raises:
        MissingDependency: If SciPy is not installed; call it before a long run, not at its end.
    """
    try:
        import scipy.special
    except ImportError as error:
        raise MissingDependency("the statistics of evaluations", "scipy", "cli") from error
    return scipy.special
