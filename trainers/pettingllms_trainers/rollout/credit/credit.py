"""What follows a candidate, in rewards of those who act.

A candidate is compared, and a branch chosen, by ``reward + value``. Credits differ in the value
alone, so that every one of them goes with every choice of the branch and of the decisions that
branch.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pettingllms_trainers.rollout.candidates import Candidates


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


class ByReward:
    """Nothing is expected to follow: AT-GRPO (arXiv 2510.11062, section 3); see `Credit`."""

    async def of_branches(
        self, candidates: Candidates, episode: int, num_branches: int, seed: int
    ) -> Values:
        """Return zeros."""
        return Values((0.0,) * num_branches)
