"""What the page knows of every episode without opening it: columns to list, filter and sort."""

from __future__ import annotations

from typing import Any

from pettingllms.viewer.episodes import ShownEpisode

_DIGITS = 6


class EpisodeIndex:
    """Columns over episodes.

    Args:
        labels: What the parts of an episode's key are.
    """

    def __init__(self, labels: tuple[str, ...]) -> None:
        self._labels = labels
        self._keys: list[list[str | int]] = [[] for _ in labels]
        self._block_starts: list[int] = []
        self._endings: list[str] = []
        self._num_turns: list[int] = []
        self._returns: dict[str, list[Any]] = {}
        self._rewards: dict[str, list[Any]] = {}
        self._errors: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._endings)

    def add(self, episode: ShownEpisode, *, is_first_of_block: bool) -> None:
        """Append an episode."""
        position = len(self)
        if is_first_of_block:
            self._block_starts.append(position)
        for column, part in zip(self._keys, episode.key, strict=True):
            column.append(part)
        self._endings.append(episode.ending)
        self._num_turns.append(episode.num_turns)
        _append(self._returns, episode.returns, position)
        _append(self._rewards, episode.role_rewards(), position)
        _append(self._errors, episode.role_errors(), position)

    def to_json(self) -> dict[str, Any]:
        """Return the columns; those of agents and roles have null where an episode has none."""
        return {
            "labels": self._labels,
            "keys": self._keys,
            "block_starts": self._block_starts,
            "endings": self._endings,
            "num_turns": self._num_turns,
            "returns": _padded(self._returns, len(self)),
            "rewards": _padded(self._rewards, len(self)),
            "errors": _padded(self._errors, len(self)),
        }


def _append(columns: dict[str, list[Any]], values: Any, position: int) -> None:
    for name, value in values.items():
        column = columns.setdefault(name, [])
        column += [None] * (position - len(column))
        column.append(round(value, _DIGITS) if isinstance(value, float) else value)


def _padded(columns: dict[str, list[Any]], length: int) -> dict[str, list[Any]]:
    return {name: column + [None] * (length - len(column)) for name, column in columns.items()}
