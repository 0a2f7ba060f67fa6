"""C3: every decision has K candidates, each played on, compared by leave-one-out."""

from __future__ import annotations

from typing import Literal

from pettingllms_trainers.algorithms.continuation import Continuation


class C3(Continuation):
    """The K candidates of every decision, played on by the present policies, without a deviation.

    Take it for comparison with `continuation`, of which it is a setting.

    Source:
        C3 (arXiv 2603.06859): restore a decision, sample K alternatives, replay the rest with the
        frozen policies, and subtract the mean of the others; no division by a deviation. Changed:
        all decisions of an episode have alternatives, where the paper may choose them.
    """

    name: str = "c3"
    """Which algorithm."""
    baseline: Literal["mean", "leave_one_out"] = "leave_one_out"
    """What is subtracted: the mean of the group, or of the other members."""
    norm: Literal["std", "batch", "none"] = "none"
    """What divides: nothing, the deviation of the group (std) or that of the step (batch)."""
