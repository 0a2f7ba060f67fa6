"""Advantages: how much better than its peers a candidate was. Pure Python, no torch.

Here is the arithmetic of one group; algorithms say what a group is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

__all__ = ["Norm", "batch_scale", "grpo", "has_signal", "leave_one_out"]

Norm = Literal["std", "batch", "none"]

# Rewards are sums of a few floats: a spread below this is rounding, and dividing by it is noise.
_RELATIVE_TOLERANCE = 1e-9


def has_signal(rewards: Sequence[float]) -> bool:
    """Return whether the rewards of a group differ by more than rounding.

    Args:
        rewards: [K] rewards of the group.
    """
    if not rewards:
        return False
    low, high = min(rewards), max(rewards)
    return high - low > _RELATIVE_TOLERANCE * max(1.0, abs(low), abs(high))


def grpo(rewards: Sequence[float], *, norm: Norm = "std") -> list[float]:
    """Return `(r - mean) / norm` of one group; all zero when the rewards are equal.

    Args:
        rewards: [K] rewards of candidates of one prompt.
        norm: `std` divides by the population standard deviation (GRPO), the others by 1:
            what `batch` divides by is known when all groups of a step are; see `batch_scale`.

    Returns:
        [K] advantages in the order of `rewards`; they sum to 0 up to rounding.

    Source:
        GRPO (arXiv 2402.03300, eq. 3), as in algorithm 1 of Stronger-MAS (arXiv 2510.11062);
        `norm="none"` is Dr. GRPO (arXiv 2503.20783). Changed: no epsilon in the divisor, because
        groups without spread give exact zeros instead.
    """
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if norm != "std":
        return centred
    std = math.sqrt(math.fsum(value * value for value in centred) / len(centred))
    return [value / std for value in centred]


def leave_one_out(rewards: Sequence[float], *, norm: Norm = "none") -> list[float]:
    """Return each reward minus the mean of the *other* rewards of the group.

    Args:
        rewards: [K] rewards of candidates of one prompt.
        norm: `std` divides by the population standard deviation of the group.

    Returns:
        [K] advantages in the order of `rewards`; they sum to 0 up to rounding.

    Source:
        RLOO (arXiv 2402.14740, eq. 8); the optional division is ours.
    """
    num = len(rewards)
    # r_i - (S - r_i) / (K - 1) is the centred reward times K / (K - 1).
    return [value * num / (num - 1) if num > 1 else 0.0 for value in grpo(rewards, norm=norm)]


def batch_scale(advantages: Sequence[float]) -> float:
    """Return the root mean square of the advantages of a step's groups, or 1 if there are none.

    Dividing by it instead of by each group's own standard deviation keeps groups apart in which
    much is at stake from those in which candidates hardly differ. The second are most groups if
    candidates are compared by a V, and what is between their candidates is the error of V.

    Args:
        advantages: [N] centred rewards of all groups with signal.

    Source:
        REINFORCE++-baseline (arXiv 2501.03262): the mean of the group, the scale of the batch.
        Changed: one scale per role, as the rewards of roles may differ in size.
    """
    if not advantages:
        return 1.0
    return math.sqrt(math.fsum(value * value for value in advantages) / len(advantages))
