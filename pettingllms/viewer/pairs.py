"""The same level played twice: before and after training, or by two variants of an evaluation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from pettingllms.viewer.episodes import ShownEpisode


class Played(NamedTuple):
    """An episode of a level."""

    group: Hashable
    episode: int
    """Its position on the page."""
    success: bool
    num_turns: int


class LevelPairs:
    """Finds the level on which two groups of episodes differ most."""

    def __init__(self) -> None:
        self._levels: dict[tuple[int, str], dict[Hashable, Played]] = {}

    def add(self, position: int, group: Hashable, episode: ShownEpisode) -> None:
        """Remember an episode; of several plays of a level by one group, the first.

        Args:
            position: Its position on the page.
            group: Who played it, or when.
            episode: The episode.
        """
        plays = self._levels.setdefault((episode.seed, episode.state_hash), {})
        plays.setdefault(group, Played(group, position, episode.success, episode.num_turns))

    def best(self, pairs: Iterable[tuple[Hashable, Hashable]]) -> tuple[Played, ...]:
        """Return both plays of the level that changed most for the better, () if none has two.

        A level that only the second solved changed most; then, one that it solved in fewer turns.

        Args:
            pairs: Groups to compare, the one whose plays come first on the left.
        """
        found = [
            (plays[first], plays[second])
            for first, second in pairs
            for plays in self._levels.values()
            if first in plays and second in plays
        ]
        return max(found, key=_change, default=())


def _change(plays: tuple[Played, Played]) -> tuple[int, int]:
    first, second = plays
    return second.success - first.success, first.num_turns - second.num_turns
