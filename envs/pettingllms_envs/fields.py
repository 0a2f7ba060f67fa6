"""Placeholders of prompts whose values are computed when a template asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

SituationT = TypeVar("SituationT")


class Fields(dict[str, object], Generic[SituationT]):
    """The values of placeholders in a situation: some at hand, all others computed on demand.

    Args:
        readers: Placeholder -> (its meaning, function of the situation).
        situation: What the functions are given.
        at_hand: Values that are known already; they go before the functions.
    """

    __slots__ = ("_readers", "_situation")

    def __init__(
        self,
        readers: Mapping[str, tuple[str, Callable[[SituationT], object]]],
        situation: SituationT,
        at_hand: Mapping[str, object],
    ) -> None:
        super().__init__(at_hand)
        self._readers = readers
        self._situation = situation

    def __missing__(self, name: str) -> object:
        return self._readers[name][1](self._situation)
