"""Credit `step`: the reward alone, as AT-GRPO compares (arXiv 2510.11062, section 3)."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trainers.rollout.credit.seam import Values
from pettingllms_trainers.rollout.episode import EpisodeState

__all__ = ["ByReward"]


class ByReward:
    """Nothing is expected to follow; see `CreditOfRollout`."""

    async def of_branches(self, episode: int, num_branches: int, seed: int) -> Values:
        """Return zeros."""
        return Values((0.0,) * num_branches)

    async def of_path(self, situation: EpisodeState, rewards: Sequence[float]) -> float:
        """Return zero."""
        return 0.0
