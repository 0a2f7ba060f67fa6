"""Reading several calls of helper functions out of an answer, and showing them within bounds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from pettingllms.parsing import Item, answer_part, read_calls
from pettingllms.types import ParseError

CallT = TypeVar("CallT")

MAX_CALLS = 8
"""Calls that are answered in one turn; further ones are not."""

CALL_CHARS = 200
"""Maximum characters of one call that the planner reads."""

RESULT_CHARS = 500
"""Maximum characters of one result that the planner reads."""


def read_several(
    text: str, names: Collection[str], call_of: Callable[[str, list[Item]], CallT | None]
) -> tuple[CallT, ...] | ParseError:
    """Read the calls of an answer; of more than `MAX_CALLS`, the first.

    Args:
        text: What the tool agent wrote.
        names: The functions that can be called.
        call_of: (name, arguments) -> the call; None if the function has other arguments. The answer
            is unreadable if that is so for one of the calls.
    """
    part = answer_part(text)
    found = part if isinstance(part, ParseError) else read_calls(part, names)
    if isinstance(found, ParseError):
        return found
    calls: list[CallT] = []
    for name, arguments in found[:MAX_CALLS]:
        call = call_of(name, arguments)
        if call is None:
            return ParseError(f"a call of {name} with other arguments than it has")
        calls.append(call)
    return tuple(calls)


def bounded(text: str, num_chars: int) -> str:
    """Return a text, cut to a number of characters if it is longer, with a note on the rest."""
    rest = len(text) - num_chars
    return text if rest <= 0 else f"{text[:num_chars]}... {rest} characters left out"
