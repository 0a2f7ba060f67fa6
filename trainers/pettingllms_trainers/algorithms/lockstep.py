"""Episodes that continue from the best of them, as long as who leads also wins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.config.algorithm import Moment, Strategy
from pettingllms_trainers.learning.slope import Slope
from pettingllms_trainers.rollout.strategies.winners import GoWithTheWinners
from pettingllms_trainers.types import Decision, RolloutTree

_KEPT = 0.9
"""Weight of evidence one train step later: policies change, and with them who wins."""
_CORRELATION = 0.3
"""Weakest correlation of lead and success that keeps episodes moving while it is uncertain."""


class Lockstep(Reinforce):
    """K episodes of a level that take their decisions together, and follow the best of them.

    A share of the levels never moves. Their episodes show, by role and turn, whether those that
    have earned more so far are solved more often in the end; where they are not, episodes of the
    other levels do not move either, and are whole episodes.

    Take it when you do not know whether rewards come at every step or at the end. Where those of
    steps mean nothing it was 14 to 40 points behind whole episodes: take `reinforce` there.

    Source:
        Go with the winners (Aldous and Vazirani, FOCS 1994), and AT-GRPO (arXiv 2510.11062,
        algorithm 1) for which of them is followed; states are merged as in GiGPO (arXiv 2505.10978)
        and GraphGPO (arXiv 2605.26684). Changed: nobody continues from another unless
        the rewards tell them apart, and Lemma 1 of AT-GRPO, that the best reward of a step is best
        in the end, is tested instead of assumed.
    """

    name: str = "lockstep"
    """Which algorithm."""
    norm: Literal["std", "batch", "none"] = "std"
    """What divides: the standard deviation of the group (std), which learns most from rewards of
    steps; that of all groups of the step, per role (batch), to which levels that never move
    contribute, and which lost less where such rewards mislead; or nothing."""
    credit: Literal["state_return", "step"] = "state_return"
    """By what: the return from there on, with what follows averaged over the episodes that were in
    the state it led to, or the reward of the own step. Those that continue from another have not
    earned what comes after."""
    free_share: float = Field(default=0.25, ge=0, lt=1)
    """Share of the levels whose episodes never move; 0: nothing is tested, and rewards of steps are
    followed whatever they mean."""

    @property
    def trusts_steps(self) -> bool:
        """See `Algorithm.trusts_steps`."""
        return super().trusts_steps or not self.free_share

    def strategy(self, moment: Moment) -> Strategy:
        """See `Algorithm.strategy`."""

        def may_move(latest: Sequence[Decision]) -> bool:
            return all(_evidence(moment.memory, one).may_be(_CORRELATION) for one in latest)

        return GoWithTheWinners(self.num_candidates, may_move, self.free_share)

    def remember(self, trees: Sequence[RolloutTree], moment: Moment) -> Mapping[str, Any]:
        """See `Algorithm.remember`: evidence of levels in which nobody moved, by role and turn."""
        if not self.free_share:
            return {}
        found = {key: Slope(*sums).kept(_KEPT) for key, sums in moment.memory.items()}
        for level in _unmoved(trees):
            for key, pairs in _leads(level).items():
                found[key] = found.get(key, Slope()).with_group(*zip(*pairs, strict=True))
        return {key: list(slope) for key, slope in found.items()}

    def metrics(self, memory: Mapping[str, Any]) -> dict[str, float]:
        """See `Algorithm.metrics`: the share of a role's turns after which episodes may move."""
        turns: dict[str, list[float]] = defaultdict(list)
        for key, sums in memory.items():
            role, _, _ = key.rpartition(" ")
            turns[role].append(Slope(*sums).may_be(_CORRELATION))
        return {f"{role}/follows": fmean(found) for role, found in turns.items()}


def _key(decision: Decision) -> str:
    return f"{decision.role} {decision.key.turn}"


def _evidence(memory: Mapping[str, Any], decision: Decision) -> Slope:
    return Slope(*memory.get(_key(decision), ()))


def _unmoved(trees: Sequence[RolloutTree]) -> list[list[RolloutTree]]:
    """Return the episodes of the levels in which all were played to an end of their own."""
    levels: dict[int, list[RolloutTree]] = defaultdict(list)
    for tree in trees:
        levels[tree.env_seed].append(tree)
    return [
        level
        for level in levels.values()
        if not any(tree.num_given_up or tree.prefix or tree.outcome is None for tree in level)
    ]


def _leads(level: Sequence[RolloutTree]) -> dict[str, list[tuple[float, float]]]:
    """Return role and turn -> what episodes had earned by then, and whether they were solved.

    The last decision of an episode is left out: what it earns says how the episode has ended, and
    nobody moves after it.
    """
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for tree in level:
        assert tree.outcome is not None, "an unmoved level has no failed episode"
        earned = accumulate(decision.candidates[0].reward for decision in tree.decisions)
        for decision, so_far in zip(tree.decisions[:-1], earned, strict=False):
            found[_key(decision)].append((so_far, float(tree.outcome.success)))
    return found
