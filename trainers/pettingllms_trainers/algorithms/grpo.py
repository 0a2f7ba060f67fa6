"""GRPO: whole episodes, compared by what they earned in all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

from pydantic import Field

from pettingllms_trainers.algorithms.group_relative import Played
from pettingllms_trainers.algorithms.whole_episodes import WholeEpisodes, by_episode
from pettingllms_trainers.config.algorithm import Member, Moment


class Grpo(WholeEpisodes):
    """K whole episodes per level; all answers of an agent get the advantage of its episode.

    Take it for comparison: it is what AT-GRPO is measured against.

    Source:
        GRPO (arXiv 2402.03300, eq. 3) by trajectory, as in Stronger-MAS (arXiv 2510.11062).
        Changed: an episode counts once per agent, whatever its length.
    """

    name: str = "grpo"
    """Which algorithm."""
    grouping: Literal["agent", "none"] = "agent"
    """Whose episodes are compared: those of an agent on one level, or of the whole batch."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per decision, of any role, of what follows."""

    def groups(self, found: Sequence[Played], moment: Moment) -> Iterable[tuple[Hashable, Member]]:
        """See `Algorithm.groups`: one member per episode and agent."""
        return by_episode(found, self.grouping, self.gamma)
