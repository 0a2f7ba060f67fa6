"""The seam where credit enters a rollout: what follows a candidate, in rewards of those who act.

A candidate is compared, and a branch chosen, by ``reward + value``. Credits differ in the value
alone, so that every one of them goes with every choice of the branch and of the decisions that
branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pettingllms_trainers.rollout.episode import EpisodeState

__all__ = ["CreditOfRollout", "Values"]


class Values(NamedTuple):
    """What follows each of some candidates."""

    values: tuple[float, ...]
    """Discounted; 0 where the episode is over."""
    num_tokens: int = 0
    """Tokens that were sampled to find out."""


class CreditOfRollout(Protocol):
    """Finds what follows candidates; one object serves all episodes of a call."""

    async def of_branches(self, episode: int, num_branches: int, seed: int) -> Values:
        """Return what follows each of the last branches of an episode.

        Args:
            episode: Its id.
            num_branches: Number of its last branches.
            seed: Decides what is drawn.
        """
        ...

    async def of_path(self, situation: EpisodeState, rewards: Sequence[float]) -> float:
        """Return what follows a candidate that a whole episode has followed to its end.

        Args:
            situation: Where the candidate led.
            rewards: Those of the agents that acted afterwards, in order.
        """
        ...
