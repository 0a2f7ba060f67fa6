"""Episodes that continue from the best of them whenever their rewards differ."""

from __future__ import annotations

from typing import Literal

from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.config.algorithm import Moment, Strategy
from pettingllms_trainers.rollout.strategies.winners import GoWithTheWinners


class Lockstep(Reinforce):
    """K episodes of a level that take their decisions together, and follow the best of them.

    Take it when you do not know whether rewards come at every step or at the end: it was level with
    AT-GRPO in the first and with whole episodes in the second. Rewards that mean nothing mislead
    it.

    Source:
        Go with the winners (Aldous and Vazirani, FOCS 1994), and AT-GRPO (arXiv 2510.11062,
        algorithm 1) for which of them is followed. Changed: nobody continues from another unless
        the rewards tell them apart.
    """

    name: str = "lockstep"
    """Which algorithm."""
    norm: Literal["std", "batch", "none"] = "std"
    """What divides: the standard deviation of the group (std); that of all groups of the step, per
    role (batch); or nothing."""
    credit: Literal["state_return", "step"] = "state_return"
    """By what: the return from there on, with what follows averaged over the episodes that were in
    the state it led to, or the reward of the own step. Those that continue from another have not
    earned what comes after."""

    def strategy(self, moment: Moment) -> Strategy:
        """See `Algorithm.strategy`."""
        return GoWithTheWinners(self.num_candidates)
