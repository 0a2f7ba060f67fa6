"""What follows a candidate, in rewards of those who act.

A candidate is compared, and a branch chosen, by ``reward + value``. Credits differ in the value
alone, so that every one of them goes with every choice of the branch and of the decisions that
branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pettingllms_trainers.rollout.candidates import Candidates
from pettingllms_trainers.rollout.episode import EpisodeState

__all__ = ["NOTHING", "ByReward", "Credit", "Values"]


class Values(NamedTuple):
    """What follows each of some candidates."""

    values: tuple[float, ...]
    """Discounted; 0 where the episode is over."""
    num_tokens: int = 0
    """Tokens that were sampled to find out."""


NOTHING = Values((0.0,))
"""Nothing follows the only candidate, as far as anybody knows."""


class Credit(Protocol):
    """Finds what follows candidates."""

    async def of_branches(
        self, candidates: Candidates, episode: int, num_branches: int, seed: int
    ) -> Values:
        """Return what follows each of the last branches of an episode.

        Args:
            candidates: Where the episode lives, and who plays it.
            episode: Its id.
            num_branches: Number of its last branches.
            seed: Decides what is drawn.
        """
        ...

    async def of_path(
        self, candidates: Candidates, after: EpisodeState, rewards: Sequence[float]
    ) -> float:
        """Return what follows a candidate that a whole episode has followed to its end.

        Args:
            candidates: Where the episode lived, and who played it.
            after: Where the candidate led.
            rewards: Those of the agents that acted afterwards, in order.
        """
        ...


class ByReward:
    """Nothing is expected to follow: AT-GRPO (arXiv 2510.11062, section 3); see `Credit`."""

    async def of_branches(
        self, candidates: Candidates, episode: int, num_branches: int, seed: int
    ) -> Values:
        """Return zeros."""
        return Values((0.0,) * num_branches)

    async def of_path(
        self, candidates: Candidates, after: EpisodeState, rewards: Sequence[float]
    ) -> float:
        """Return zero."""
        return 0.0
