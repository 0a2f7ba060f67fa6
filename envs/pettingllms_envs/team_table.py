"""The teams that play the games."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pettingllms.prompts import PromptField, PromptTemplate

TEAMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "tool-planner": (("tool_0",), ("planner_0",)),
    "proposer-planner": (("proposer_0",), ("planner_0",)),
    "single": (("planner_0",),),
    "single-tool": (("tool_0",),),
}
"""Team -> agents by stage; the last agent alone decides what is done."""

MAX_MOVES_PER_TURN = 10_000
"""Maximum `moves_per_turn`; it bounds the proposals that prompts show."""


def asks_for_mark(template: PromptTemplate) -> bool:
    """Whether a prompt speaks of `####`; scripted policies answer tersely where none does.

    Tiny models learn to write `UR` or `2,3` from their demonstrations, and need no more.
    """
    return "####" in template.system + template.user


def seat_of(agent: str) -> int:
    """The number at the end of an agent's name."""
    return int(agent.rpartition("_")[2])


def constant_fields(
    meanings: Mapping[str, str], shown: Mapping[str, object]
) -> dict[str, PromptField[Any]]:
    """Placeholders that say the same in every prompt of an environment."""

    def constant(value: str) -> Callable[[Any, str, int], str]:
        return lambda state, agent, turn: value

    return {
        name: PromptField(meaning, constant(str(shown[name]))) for name, meaning in meanings.items()
    }
