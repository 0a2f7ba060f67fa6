"""The teams that play the games, and placeholders of prompts that several games have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from pettingllms.env import TextEnv
from pettingllms.prompts import PromptField, PromptFields
from pettingllms.types import role_of

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


class TableEnv(TextEnv[StateT]):
    """Base of games whose prompts have a placeholder for each `PromptField`."""

    _placeholders: Mapping[str, PromptField[StateT]]
    """Name -> placeholder; set by `__init__` of a game."""

    def _fields(self, state: StateT, agent: str, turn: int) -> Mapping[str, object]:
        return PromptFields(self._placeholders, state, agent, turn)

    @cached_property
    def _marked_roles(self) -> frozenset[str]:
        """Roles whose prompts speak of `####`; in others scripted policies answer tersely.

        Tiny models learn to write `UR` or `2,3` from their demonstrations, and need no more.
        """
        prompts = self.prompts.items()
        return frozenset(role for role, text in prompts if "####" in text.system + text.user)

    def _is_marked(self, agent: str) -> bool:
        """Whether the prompt of an agent asks for `####` before the answer."""
        return role_of(agent) in self._marked_roles


def seat_of(agent: str) -> int:
    """The number at the end of an agent's name."""
    return int(agent.rpartition("_")[2])


TURN: PromptField[Any] = PromptField(
    "the present turn, from 1", lambda state, agent, turn: turn + 1
)
"""The placeholder `turn`."""


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
