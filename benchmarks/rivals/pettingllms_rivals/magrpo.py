"""MAGRPO: joint actions of a turn, compared by what the team earned from it on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from pettingllms_trainers.algorithms.base import Groups, Played, WholeEpisodes
from pettingllms_trainers.config.algorithm import Member, StepContext


class Magrpo(WholeEpisodes):
    """K whole episodes; all answers of a turn get the advantage of the team's return from it on.

    Take it for comparison with `reinforce`, which credits agents one by one.

    Source:
        MAGRPO (arXiv 2508.04652): joint actions of a turn, the return from there on minus the mean
        of the group, for all agents alike. Changed: whole episodes instead of K joint actions per
        turn; the return is the sum of the rewards of who acts; no division by the deviation.
    """

    name: str = "magrpo"
    """Which algorithm."""
    norm: Literal["std", "batch", "none"] = "none"
    """What divides: nothing, the deviation of the group (std) or that of the step (batch)."""

    def groups(self, played: Sequence[Played], context: StepContext) -> Groups:
        joint: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, (tree, decision) in enumerate(played):
            joint[tree.episode, decision.key.turn].append(index)
        for (_, turn), indices in joint.items():
            tree = played[indices[0]][0]
            # All agents of a turn act jointly, so that none is credited with what it alone was
            # paid.
            rest = [one for one in tree.decisions if one.key.turn >= turn]
            value = sum(one.candidates[0].reward for one in rest)
            yield (tree.env_seed, turn), Member(value, tuple((index, 0) for index in indices))
