"""Placeholders of prompts whose values are computed when a template asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

SituationT = TypeVar("SituationT")


class Fields(Mapping[str, object], Generic[SituationT]):
    """The values of placeholders in a situation.

    Args:
        readers: Placeholder -> (its meaning, function of the situation).
        situation: What the functions are given.
    """

    __slots__ = ("_readers", "_situation")

    def __init__(
        self,
        readers: Mapping[str, tuple[str, Callable[[SituationT], object]]],
        situation: SituationT,
    ) -> None:
        self._readers = readers
        self._situation = situation

    def __getitem__(self, name: str) -> object:
        return self._readers[name][1](self._situation)

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)
