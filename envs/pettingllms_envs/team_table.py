"""The teams that play the games, and placeholders of prompts that several games have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pettingllms.prompts import PromptField

StateT = TypeVar("StateT")

TEAMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "tool-planner": (("tool_0",), ("planner_0",)),
    "proposer-planner": (("proposer_0",), ("planner_0",)),
    "single": (("planner_0",),),
    "single-tool": (("tool_0",),),
}
"""Team -> agents by stage; the last agent alone decides what is done."""

MAX_MOVES_PER_TURN = 10_000
"""Maximum `moves_per_turn`; it bounds the proposals that prompts show."""


def seat_of(agent: str) -> int:
    """The number at the end of an agent's name."""
    return int(agent.rpartition("_")[2])


def of_seat(meaning: str, show: Callable[[StateT, int], object]) -> PromptField[StateT]:
    """A placeholder that shows the state to the reader of a seat; see `seat_of`."""
    return PromptField(meaning, lambda state, agent, turn: show(state, seat_of(agent)))


def constant_fields(
    meanings: Mapping[str, str], values: Iterable[object]
) -> dict[str, PromptField[Any]]:
    """Placeholders with one value in every prompt of an environment.

    Args:
        meanings: Name -> meaning.
        values: Their values, in the same order.
    """

    def constant(value: object) -> Callable[[Any, str, int], object]:
        return lambda state, agent, turn: value

    pairs = zip(meanings.items(), values, strict=True)
    return {name: PromptField(meaning, constant(value)) for (name, meaning), value in pairs}
