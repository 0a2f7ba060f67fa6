"""Which level is played next: by success so far, where the outcome is least certain.

One rule for training and for measuring. A curriculum draws levels of a train step by it
(`level_shares`), a benchmark looks for the hardest level that a team passes (`next_level`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PASSED = 0.5
"""Share of the episodes of a level that a team must solve to pass it."""
CONFIDENCE = 0.95
"""How sure it must be that a level is passed, or that it is not, before it is played no more."""


class LevelRecord(NamedTuple):
    """How the episodes of a level have ended, earlier ones possibly with less weight."""

    num_success: float = 0.0
    """Weighted number of episodes that were solved."""
    num_episodes: float = 0.0
    """Weighted number of episodes, at least `num_success`."""

    @property
    def success(self) -> float:
        """Estimate of the share that is solved, in (0, 1): the mean under a uniform prior.

        A level that was never played, or long ago, is at 1/2.
        """
        return (self.num_success + 1) / (self.num_episodes + 2)

    @property
    def learnability(self) -> float:
        """How much an episode can tell: p (1 - p) for the success p, in (0, 1/4].

        Source:
            Rutherford et al. (arXiv 2408.15099): the variance of success, which is what a group of
            answers can be compared by. Changed: of levels of difficulty and not of single boards,
            whose p would need episodes of every board under the present policy.
        """
        return self.success * (1 - self.success)


def level_shares(records: Sequence[LevelRecord], floor: float) -> list[float]:
    """The share of the episodes that every level gets: above 0, adding up to 1.

    Args:
        records: Of the levels.
        floor: Part that all levels get alike, in (0, 1]; the rest goes by learnability.
    """
    total, equal = sum(record.learnability for record in records), floor / len(records)
    return [equal + (1 - floor) * record.learnability / total for record in records]


def with_episodes(
    records: Sequence[LevelRecord], ended: Iterable[tuple[int, bool]], decay: float = 1.0
) -> list[LevelRecord]:
    """The records after further episodes.

    Args:
        records: Before them, of every level.
        ended: Number of the level of each episode, from 0, and whether it was solved.
        decay: Weight of everything before, in [0, 1].
    """
    found = [(decay * record.num_success, decay * record.num_episodes) for record in records]
    for level, is_solved in ended:
        num_success, num_episodes = found[level]
        found[level] = num_success + is_solved, num_episodes + 1
    return [LevelRecord(*counts) for counts in found]


def next_level(records: Sequence[LevelRecord], max_episodes: int) -> int | None:
    """Which level to play next to find the hardest one that is passed; None: it is found.

    Who passes a level passes those before it, and who fails one those behind it. Of the levels in
    between, the one with the highest learnability is played; of equal ones the middle.

    Args:
        records: Of all levels, from easy to hard, with whole numbers of episodes.
        max_episodes: Episodes of a level after which the share that was solved decides.
    """
    first, last = _open_levels(records, max_episodes)
    if first > last:
        return None
    middle = (first + last) / 2
    return max(
        range(first, last + 1), key=lambda k: (records[k].learnability, -abs(k - middle), -k)
    )


def hardest_passed(records: Sequence[LevelRecord], max_episodes: int) -> int | None:
    """The hardest level that is passed, as far as was found out; None if there is none.

    Args:
        records: As for `next_level`, as is the next.
        max_episodes: Episodes of a level after which the share that was solved decides.
    """
    first, _ = _open_levels(records, max_episodes)
    return first - 1 if first else None


def _open_levels(records: Sequence[LevelRecord], max_episodes: int) -> tuple[int, int]:
    """The first and the last level of which it is open whether they are passed."""
    first, last = 0, len(records) - 1
    for level, record in enumerate(records):
        if (is_passed := _is_passed(record, max_episodes)) is True:
            first, last = level + 1, len(records) - 1
        elif is_passed is False:
            last = min(last, level - 1)
    return first, last


def _is_passed(record: LevelRecord, max_episodes: int) -> bool | None:
    """Whether a level is passed; None while it is open."""
    num_success, num_episodes = int(record.num_success), int(record.num_episodes)
    if num_episodes >= max_episodes:
        return num_success >= PASSED * num_episodes
    # The chance under a uniform prior that the success is below 1/2: a tail of tosses of a coin.
    tosses = num_episodes + 1
    heads = sum(math.comb(tosses, k) for k in range(num_success + 1, tosses + 1))
    below = heads / 2**tosses
    return True if below < 1 - CONFIDENCE else False if below > CONFIDENCE else None
