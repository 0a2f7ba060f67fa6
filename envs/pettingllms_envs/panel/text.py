"""What moderators and experts read and write."""

from __future__ import annotations

import re
from typing import NamedTuple

from pettingllms.parsing import Part, answer_part, bare_answer, one_line
from pettingllms.transition import ParseError
from pettingllms_envs.panel.rules import NAMES, PanelState

PASS = "pass"
_GIVE = re.compile(rf"(?:expert[_ ]?)?([0-9])[\s,]*([{NAMES}])")
_SUM = re.compile(r"=?\s*([0-9]{1,3})")
_STATE = re.compile(rf"([{NAMES}])\s*(?:is)?\s*([0-9])")
_NOTHING = {PASS, "-"}


class GiveFloor(NamedTuple):
    """The moderator lets an expert speak."""

    expert: int
    name: str
    """The quantity that is asked for."""


class FinalAnswer(NamedTuple):
    """The moderator's answer."""

    value: int


class Statement(NamedTuple):
    """An expert's statement; a passing one names nothing."""

    name: str
    value: int


def _said(text: str, is_marked: bool) -> str | ParseError:
    part: Part | ParseError = answer_part(text)
    if isinstance(part, ParseError):
        return part
    if is_marked and not part.is_marked:
        return ParseError("no ####")
    return bare_answer(part).strip("[]\"'() ").lower()


def read_moderator(
    text: str, num_experts: int, is_marked: bool
) -> GiveFloor | FinalAnswer | ParseError:
    """Read what the moderator does: `1 x` or `expert_1 x` gives the floor, `= 12` answers.

    Args:
        text: What the moderator wrote.
        num_experts: How many experts there are.
        is_marked: Whether the answer must follow `####`.
    """
    said = _said(text, is_marked)
    if isinstance(said, ParseError):
        return said
    if (given := _GIVE.fullmatch(said)) is not None:
        expert = int(given[1])
        if expert >= num_experts:
            return ParseError(f"there is no expert {expert}")
        return GiveFloor(expert, given[2])
    if said.startswith("=") and (total := _SUM.fullmatch(said)) is not None:
        return FinalAnswer(int(total[1]))
    shown = one_line(said, 40) or "an empty text"
    return ParseError(f"{shown} neither gives the floor nor answers")


def read_expert(text: str, is_marked: bool) -> Statement | ParseError:
    """Read what an expert says: `x is 7`, or `pass`.

    Args:
        text: What the expert wrote.
        is_marked: Whether the statement must follow `####`.
    """
    said = _said(text, is_marked)
    if isinstance(said, ParseError):
        return said
    if said in _NOTHING:
        return Statement("", 0)
    if (stated := _STATE.fullmatch(said)) is not None:
        return Statement(stated[1], int(stated[2]))
    shown = one_line(said, 40) or "an empty text"
    return ParseError(f"{shown} is no statement such as x is 7")


def experts_text(state: PanelState) -> str:
    """Return a line per expert with the names of what is known, without the values."""
    return "\n".join(
        f"expert {number} knows: {', '.join(name for name, _ in own)}"
        for number, own in enumerate(state.level.values)
    )


def board_text(state: PanelState) -> str:
    """Return what was said so far."""
    said = ", ".join(f"{name} = {value} (expert {who})" for name, value, who in state.board)
    return said or "nothing"


def experts_compact(state: PanelState) -> str:
    """Return the names that each expert knows, after the expert's number: `0ab1cd`."""
    known = enumerate(state.level.values)
    return "".join(f"{number}{''.join(name for name, _ in own)}" for number, own in known)


def board_compact(state: PanelState) -> str:
    """Return what was said as pairs: `a7c2`."""
    return "".join(f"{name}{value}" for name, value, _ in state.board)


def own_text(state: PanelState, expert: int) -> str:
    """Return what an expert knows: `a = 7, b = 2`."""
    return ", ".join(f"{name} = {value}" for name, value in state.level.values[expert])


def own_compact(state: PanelState, expert: int) -> str:
    """Return what an expert knows as pairs: `a7b2`."""
    return "".join(f"{name}{value}" for name, value in state.level.values[expert])
