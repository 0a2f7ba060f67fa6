"""What one action does, and what an unreadable text is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

_AGENT = re.compile(r"[^\W\d_][\w-]*_[0-9]+")

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""No info and no options."""


class Transition(NamedTuple):
    """What one action did to the world."""

    state: Any
    """The new state."""
    team: float = 0.0
    """Team part of the reward: credited to every agent, times `alpha`."""
    local: float = 0.0
    """Local part of the reward: credited to the acting agent only."""
    terminated: bool = False
    """Whether the episode ends with this action (for all agents)."""
    success: bool = False
    """Whether the task is solved. A time-out is never a success."""
    info: Mapping[str, Any] = NOTHING
    """Further facts for `infos` of the acting agent: numbers, texts, and tuples of these.

    Branches share them, so they hold nothing that can be changed: no lists, no dicts.
    """
    common: Mapping[str, Any] = NOTHING
    """Such facts for the `infos` of every agent: what simultaneous actions have done together."""


class ParseError(NamedTuple):
    """A model text that could not be read. It is an outcome with a reward, never an exception."""

    reason: str


def is_agent(name: str) -> bool:
    """Return whether a name has the form `<role>_<number>`.

    A role begins with a letter; letters, digits, `_` and `-` follow.
    """
    return _AGENT.fullmatch(name) is not None


def role_of(agent: str) -> str:
    """Return the role of an agent: the part of its name before the number (`"planner_0"`)."""
    return agent.rpartition("_")[0]
