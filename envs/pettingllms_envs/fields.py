"""Placeholders of prompts whose values are computed when a template asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

SituationT = TypeVar("SituationT")

Readers = Mapping[str, tuple[str, Callable[[SituationT], object]]]
"""Placeholder -> (its meaning, function of the situation)."""


class Fields(dict[str, object], Generic[SituationT]):
    """The values of placeholders: some at hand, all others computed from a situation on demand.

    Args:
        at_hand: Values that are known already.
        readers: How the others are computed.
        situation: Returns what the readers are given; called only when one is needed.
    """

    __slots__ = ("_readers", "_situation")

    def __init__(
        self,
        at_hand: Mapping[str, object],
        readers: Readers[SituationT],
        situation: Callable[[], SituationT],
    ) -> None:
        super().__init__(at_hand)
        self._readers = readers
        self._situation = situation

    def __missing__(self, name: str) -> object:
        return self._readers[name][1](self._situation())
