"""Which candidate an episode continues with."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from pettingllms_trainers.config.algorithm import BranchChoice

__all__ = ["choose"]


def choose(
    rewards: Sequence[float], branch_choice: BranchChoice, temperature: float, rng: random.Random
) -> int:
    """Return the index of the candidate that an episode continues with.

    Args:
        rewards: [K] rewards of the candidates, at least one.
        branch_choice: `greedy`: the best, the lowest index among equals; `random`: any;
            `softmax`: with probability proportional to `exp(reward / temperature)`.
        temperature: Of `softmax`, above 0.
        rng: Source of chance.
    """
    if branch_choice == "greedy":
        return rewards.index(max(rewards))
    if branch_choice == "random":
        return rng.randrange(len(rewards))
    best = max(rewards)
    weights = [math.exp((reward - best) / temperature) for reward in rewards]
    return rng.choices(range(len(rewards)), weights)[0]
