"""The teams that play the games, and checks of the arguments that all games share."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pettingllms.errors import InvalidArgument, suggestion

TEAMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "tool-planner": (("tool_0",), ("planner_0",)),
    "proposer-planner": (("proposer_0",), ("planner_0",)),
    "single": (("planner_0",),),
}
"""Team -> agents by stage; the planner comes last and alone decides what is done."""

TOOLS = ("python", "call")
"""What the tool agent may do: write a program for the sandbox, or call helper functions."""


def check_choice(name: str, value: str, allowed: Collection[str]) -> str:
    """Return `value` if it is allowed.

    Raises:
        InvalidArgument: If it is not; suggests the nearest.
    """
    if value not in allowed:
        hint = suggestion(value, allowed) if isinstance(value, str) else ""
        raise InvalidArgument(name, value, "one of " + ", ".join(allowed) + hint)
    return value
