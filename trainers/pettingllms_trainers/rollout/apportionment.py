"""How many levels of a train step each of several environments gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

from pettingllms.seeding import derive_seed

_GOLDEN = Fraction((math.sqrt(5) - 1) / 2)


def apportioned(weights: Sequence[float], num: int, offset: Fraction) -> list[int]:
    """Return how many of `num` equal parts go to each weight: systematic sampling.

    Every count is the floor or the ceiling of its quota ``num * weight / sum(weights)``, and for an
    offset drawn evenly from [0, 1) its expectation is the quota: no other draw of whole numbers has
    less variance.

    Args:
        weights: Above 0, at least one.
        num: Parts, at least 0.
        offset: Which of the roundings, in [0, 1).
    """
    total = sum(map(Fraction, weights))
    ends = accumulate(num * Fraction(weight) / total for weight in weights)
    # A part k is at k + offset; those before an end are ceil(end - offset).
    before = [0, *(math.ceil(end - offset) for end in ends)]
    return [last - first for first, last in pairwise(before)]


def level_counts(
    weights: Sequence[float], num_levels: int, *, seed: int, step: int, refill: int
) -> list[int]:
    """Return how many levels of a round of a train step each environment plays.

    They depend on nothing but the arguments, so that a resumed run repeats them. The offset moves
    by the golden ratio from one train step to the next: over any number of steps the levels of an
    environment stay near their quota, also where it is less than one level per step.

    Args:
        weights: Of the environments.
        num_levels: Of all of them together.
        seed: Of the run.
        step: Train step, from 0.
        refill: Number of the round within the step, from 0.
    """
    first = Fraction(derive_seed(seed, "environments", refill), 1 << 53)
    return apportioned(weights, num_levels, (first + step * _GOLDEN) % 1)
