"""What went wrong in the recorded episodes: causes, how often, and where one is to be seen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms.types import role_of
from pettingllms.viewer.episodes import ShownEpisode

MAX_CAUSES = 8
"""Causes in the table, the most frequent first; the others are counted together."""
_MAX_CAUSE = 100
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
_ENDINGS = {
    "terminated": "ended unsolved",
    "truncated": "out of turns",
    "unfinished": "not finished",
}
_EPISODES = "episodes"
_TOKEN_LIMIT = "truncated at the token limit"


class _Failure(NamedTuple):
    of: str
    """`episodes`, or the role whose answers are counted."""
    cause: str


class _Seen(NamedTuple):
    failure: _Failure
    decision: int
    candidate: int | None


class FailureCounts:
    """Counts failures of episodes, and of all answers of their decisions, by groups of episodes."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, Counter[_Failure]] = {}
        self._totals: dict[Hashable, Counter[str]] = {}
        self._places: dict[tuple[_Failure, Hashable], tuple[int, int, int | None]] = {}

    def add(self, position: int, group: Hashable, episode: ShownEpisode) -> None:
        """Count an episode.

        Args:
            position: Its position on the page.
            group: Episodes of which group it is counted with.
            episode: The episode.
        """
        counts = self._counts.setdefault(group, Counter())
        totals = self._totals.setdefault(group, Counter())
        totals[_EPISODES] += 1
        for decision in episode.decisions:
            totals[role_of(decision["agent"])] += len(decision["candidates"])
        for failure, decision, candidate in failures_of(episode):
            counts[failure] += 1
            self._places.setdefault((failure, group), (position, decision, candidate))

    def table(self, columns: Mapping[str, Hashable]) -> dict[str, Any]:
        """Return the most frequent causes.

        Args:
            columns: Heading of a column -> the group that it counts.

        Returns:
            `columns`: the headings. `rows`: `of`, what is counted; its `cause`; for each column
            `counts` and, of how many, `totals`; `place`: episode, decision and candidate of one
            in the last column that has any. `num_others`: failures of causes without a row.
        """
        groups = list(columns.values())
        all_counts = [self._counts.get(group, Counter()) for group in groups]
        summed = sum(all_counts, Counter[_Failure]())
        kept = summed.most_common(MAX_CAUSES)
        return {
            "columns": list(columns),
            "rows": [
                {
                    "of": failure.of,
                    "cause": failure.cause,
                    "counts": [counts[failure] for counts in all_counts],
                    "totals": [self._totals.get(g, Counter())[failure.of] for g in groups],
                    "place": self._place(failure, groups),
                }
                for failure, _ in kept
            ],
            "num_others": summed.total() - sum(count for _, count in kept),
        }

    def _place(self, failure: _Failure, groups: Sequence[Hashable]) -> tuple[int, int, int | None]:
        known = (self._places.get((failure, group)) for group in reversed(groups))
        return next(place for place in known if place is not None)


def failures_of(episode: ShownEpisode) -> Iterator[_Seen]:
    """Yield what went wrong: with the episode, and with every answer, also of those not followed.

    An answer that was truncated is counted as that, whether or not it could be read.
    """
    last = max(0, len(episode.decisions) - 1)
    if episode.ending == "failed":
        yield _Seen(
            _Failure(_EPISODES, f"rollout failed: {_alike(episode.cause or 'unknown')}"), last, None
        )
    elif episode.ending in _ENDINGS:
        yield _Seen(_Failure(_EPISODES, _ENDINGS[episode.ending]), last, None)
    for n, decision in enumerate(episode.decisions):
        role = role_of(decision["agent"])
        for k, candidate in enumerate(decision["candidates"]):
            if candidate["finish_reason"] == "length":
                yield _Seen(_Failure(role, _TOKEN_LIMIT), n, k)
            elif candidate["parse_error"] is not None:
                cause = f"unreadable: {_alike(str(candidate['parse_error']))}"
                yield _Seen(_Failure(role, cause), n, k)


def _alike(cause: str) -> str:
    """Return a cause without what varies between its cases: numbers, and what is quoted."""
    (first, *_) = cause.strip().splitlines() or [""]
    text = _VARYING.sub(lambda match: "'…'" if match[0][0] in "'\"" else "N", first)
    return text if len(text) <= _MAX_CAUSE else text[: _MAX_CAUSE - 1] + "…"
