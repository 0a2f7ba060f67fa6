"""What moderators and experts read and write, and the scripted policies of both."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from pettingllms.parsing import one_line, read_phrase
from pettingllms.types import ParseError
from pettingllms_envs.panel.rules import NAMES, PanelState, Statement

PASS, TERSE_PASS = "pass", "-"
_GIVE = re.compile(
    r"(?:i )?(?:(?:ask|call|give the floor to) )?(?:expert[_ ]?)?([0-9])"
    rf"(?:\s*[,:;]|\s+(?:for|about|what is|to say))?\s*(?:quantity )?([{NAMES}])"
    r"(?: please)?\s*\??"
)
_SUM = re.compile(
    r"(?:(?:(?:so |thus |therefore )?(?:the |my )?(?:final )?(?:answer|sum|total|result)"
    rf"(?: is|:)?|[{NAMES}0-9 ]+(?:\+[{NAMES}0-9 ]+)+=)\s*=?|=)\s*([0-9]{{1,3}})"
)
_STATE = re.compile(
    rf"(?:i know (?:that )?)?(?:(?:the )?(?:value of |quantity )?([{NAMES}])"
    r"\s*(?:is|equals|[=:])?)?\s*([0-9])"
)
_FOLLOWS = re.compile(
    rf"(?:i know (?:that )?)?(?:the )?(?:quantity )?([{NAMES}])\s*(?:is|equals|[=:])\s*"
    rf"(?:([{NAMES}])(?:\s*([+-])\s*([0-9]{{1,3}}))?|([0-9]{{1,3}})(?:\s*([+-])\s*([{NAMES}]))?)"
)


class GiveFloor(NamedTuple):
    """The moderator lets an expert speak."""

    expert: int
    name: str
    """The quantity that is asked for."""


class FinalAnswer(NamedTuple):
    """The moderator's answer."""

    value: int


def read_moderator(
    text: str, num_experts: int, is_marked: bool
) -> GiveFloor | FinalAnswer | ParseError:
    """Read what the moderator does: `1 x` or `ask expert 1 for x`; `= 12` or `the sum is 12`.

    `is_marked`: the answer must follow `####`.
    """

    def fits(said: str) -> GiveFloor | FinalAnswer | ParseError:
        said = said.lower()
        if (given := _GIVE.fullmatch(said)) is not None:
            expert = int(given[1])
            if expert >= num_experts:
                return ParseError(f"there is no expert {expert}")
            return GiveFloor(expert, given[2])
        # A number alone may be an expert's: an answer is final, so that it says what it is.
        if (total := _SUM.fullmatch(said)) is not None:
            return FinalAnswer(int(total[1]))
        shown = one_line(said, 40) or "an empty text"
        return ParseError(f"{shown} neither gives the floor nor answers")

    return read_phrase(text, fits, needs_mark=is_marked)


def read_expert(
    text: str, request: str, is_marked: bool, has_links: bool = False
) -> Statement | ParseError:
    """Read what an expert says: `x is 7`, `x = 7`, `x: 7`, `7` about the request, or `pass`.

    With links it is `x = 7`, `x = y + 7`, `x = y - 7` or `x = 7 - y`, or `pass`. `request` is the
    quantity that the moderator has asked for; `is_marked`: the statement must follow `####`.
    """

    def fits(said: str) -> Statement | ParseError:
        said = said.lower()
        if said in (PASS, TERSE_PASS):
            return Statement("", 0)
        # Before plain statements: with links a number alone says nothing about which kind it is.
        if has_links and (follows := _FOLLOWS.fullmatch(said)) is not None:
            name, other, plus, added, value, sign, taken = follows.groups()
            if other:
                return Statement(name, int(f"{plus or ''}{added or 0}"), other)
            return Statement(name, int(value), taken or "", -1 if sign == "-" else 1)
        if not has_links and (stated := _STATE.fullmatch(said)) is not None:
            return Statement(stated[1] or request, int(stated[2]))
        shown = one_line(said, 40) or "an empty text"
        linked = " or x = y + 7" * has_links
        return ParseError(f"{shown} is not a statement such as x = 7{linked}")

    return read_phrase(text, fits, needs_mark=is_marked)


def experts_text(state: PanelState) -> str:
    """A line per expert with the names of what is known, without the values."""
    return "\n".join(
        f"expert {number} knows: {', '.join(name for name, _ in own)}"
        for number, own in enumerate(state.level.values)
    )


def board_text(state: PanelState) -> str:
    """What was said so far."""
    said, who = state.said, {name: expert for name, _, expert in state.board}
    shown = ", ".join(f"{statement_text(said[name])} (expert {who[name]})" for name in said)
    return shown or "nothing"


def statement_text(said: Statement) -> str:
    """A statement as experts make it: `b = 7`, `b = a + 5`, `b = a - 5` or `b = 12 - a`."""
    name, value, other, sign = said
    if other and sign < 0:
        return f"{name} = {value} - {other}"
    if other:
        return f"{name} = {other} {'-' if value < 0 else '+'} {abs(value)}"
    return f"{name} = {value}"


def _compact(said: Statement) -> str:
    if not said.other:
        return f"{said.name}{said.value}"
    return statement_text(said).replace(" = ", "", 1).replace(" ", "")


def experts_compact(state: PanelState) -> str:
    """The names that each expert knows, after the expert's number: `0ab1cd`."""
    known = enumerate(state.level.values)
    return "".join(f"{number}{''.join(name for name, _ in own)}" for number, own in known)


def board_compact(state: PanelState) -> str:
    """What was said as pairs: `a7c2`, with links `a7cb+5`."""
    return "".join(map(_compact, state.said.values()))


def own_text(state: PanelState, expert: int) -> str:
    """What an expert knows: `a = 7, b = 2`."""
    return ", ".join(map(statement_text, state.level.facts(expert)))


def own_compact(state: PanelState, expert: int) -> str:
    """What an expert knows as pairs: `a7b2`."""
    return "".join(map(_compact, state.level.facts(expert)))


MEAN, MEAN_LINKED = 4.5, 49.5
"""The mean of a value, without and with links."""


def say(state: PanelState, expert: int | None, policy: str, rng: random.Random) -> str:
    """What a scripted policy says, without the mark; the moderator speaks where `expert` is None.

    With oracle the moderator asks who knows for what is missing, then answers, and experts say what
    they are asked for. With random the moderator asks any expert for anything known to that expert,
    or in one of four cases answers, which is right if all is known by luck, and experts say any one
    thing they know. Guess answers with the mean, at once.
    """
    level = state.level
    if expert is None:
        return _moderate(state, policy, rng)
    own = sorted(dict(level.values[expert]))
    # Experts who guess still say what is true: only the moderator's answer is a guess.
    if policy == "random" or (policy == "guess" and own):
        return statement_text(level.fact(rng.choice(own)))
    return statement_text(level.fact(state.request)) if state.request in own else PASS


def _moderate(state: PanelState, policy: str, rng: random.Random) -> str:
    level = state.level
    said = state.said
    if policy == "guess":
        return f"= {round((MEAN_LINKED if level.links else MEAN) * len(level.needed))}"
    if policy == "random":
        if rng.random() < 0.25:
            most = 100 if level.links else 10
            known = [
                said[name].value if name in said else rng.randrange(most) for name in level.needed
            ]
            return f"= {max(0, sum(known))}"
        expert = rng.randrange(len(level.values))
        return f"{expert} {rng.choice(level.values[expert])[0]}"
    # Also what was said wrongly is asked again: whoever said it can correct it.
    for name in level.wanted:
        if said.get(name) != level.fact(name):
            return f"{level.owner(name)} {name}"
    return f"= {level.answer}"
