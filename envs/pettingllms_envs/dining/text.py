"""Tables, choices and messages as text: what philosophers read and write; the level format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pettingllms.errors import LevelFormatError
from pettingllms.parsing import one_line, read_phrase
from pettingllms.types import ParseError
from pettingllms_envs.dining.generator import Level
from pettingllms_envs.dining.rules import (
    CHOICES,
    FREE,
    LEFT,
    MAX_MEALS,
    MAX_SEATS,
    MIN_SEATS,
    RELEASE,
    RIGHT,
    WAIT,
    Choices,
    Table,
)
from pettingllms_envs.dining.schedule import shortest_schedule

LETTERS = {"l": LEFT, "r": RIGHT, "d": RELEASE, "w": WAIT}
"""Terse answers: left, right, down, wait."""
_WILL = r"(?:i (?:will |would |want to |choose to )?)?"
_TAKE = re.compile(
    rf"{_WILL}(?:(?:take|choose|pick up|pick|grab|reach for) )?"
    r"(?:the |my )?(left|right|wait)(?: fork)?"
)
_RELEASE = re.compile(
    rf"{_WILL}(?:release|put (?:it |them )?down|put back)"
    r"(?: (?:the|my|both|all)){0,2}(?: forks?)?"
)
_SAY = re.compile(r"\bsay\b", re.IGNORECASE)
_TERSE = re.compile(r"([LRDW])(\d)", re.IGNORECASE)
_UNSAID = re.compile(r"[^\w\s.,;:!?'()+=/-]")
_FORMAT = "'1 0 2 / . 1 .': meals of each philosopher / holder of each fork, . if it is free"
MAX_MESSAGE = 60
"""Longest message, in characters; what is longer is cut."""


class Move(NamedTuple):
    """What a philosopher does in a turn."""

    choice: str
    message: str = ""
    """What is said; empty if nothing."""


class Utterance(NamedTuple):
    """The latest that a philosopher has said."""

    turn: int
    """Number of the turn, from 1; 0 if nothing was said."""
    text: str = ""


def read_move(text: str) -> Move | ParseError:
    """Read an answer: a word of `CHOICES` or a letter of `LETTERS`, and what is said, if anything.

    Verbs and nouns around a word are read too: `take the left fork`, `put down`. A message follows
    the word `say`; behind a letter it is one digit: `L2`.
    """
    return read_phrase(text, _move_in, needs_mark=False)


def _move_in(said: str) -> Move | ParseError:
    if found := _TERSE.fullmatch(said):
        return Move(LETTERS[found[1].lower()], found[2])
    chosen, *spoken = _SAY.split(said, maxsplit=1)
    choice = _choice_in(chosen.strip(" \t,;.:|").removesuffix(" and"))
    if isinstance(choice, ParseError):
        return choice
    return Move(choice, heard(spoken[0]) if spoken else "")


def heard(said: str) -> str:
    """Return what others read of a message: plain words in one line, cut to `MAX_MESSAGE`.

    Letters, digits and common signs are left; no quotation mark, bracket or sign of markup, so that
    a message can neither end its quotation nor look like a part of a prompt.
    """
    return one_line(_UNSAID.sub(" ", said[: 4 * MAX_MESSAGE]), MAX_MESSAGE).strip(" :,;")


def _choice_in(said: str) -> str | ParseError:
    said = said.lower()
    word = LETTERS.get(said, said)
    if word in CHOICES:
        return word
    if found := _TAKE.fullmatch(said):
        return found[1]
    if _RELEASE.fullmatch(said):
        return RELEASE
    shown = one_line(word, 40) or "an empty text"
    return ParseError(f"{shown} is none of {', '.join(CHOICES)}")


def terse(move: Move) -> str:
    """Return the letter of a choice, and the digit of its message."""
    letter = next(letter.upper() for letter, word in LETTERS.items() if word == move.choice)
    return letter + move.message[-1:]


def within(seat: int, sight: int, seats: int) -> list[int]:
    """Return the philosophers whom one sees and hears, the own seat first, then to the right."""
    near = (step for step in range(seats) if min(step, seats - step) <= sight)
    return [(seat + step) % seats for step in near]


def table_text(
    table: Table, eaten: Sequence[int], said: Sequence[Utterance], seen: Iterable[int]
) -> str:
    """Return a line per philosopher that is seen, and the free forks among theirs."""
    seats, seen = len(table.forks), sorted(seen)
    lines: list[str] = []
    for seat in seen:
        sides = [side for side, fork in _sides(seat, seats) if table.forks[fork] == seat]
        holds = f"holds the {sides[0]} fork" if sides else "holds no fork"
        turn, message = said[seat]
        says = f', said in turn {turn}: "{message}"' if message else ""
        lines.append(f"philosopher {seat}: has eaten {eaten[seat]}, {holds}{says}")
    near = {fork for seat in seen for _, fork in _sides(seat, seats)}
    free = [str(fork) for fork in sorted(near) if table.forks[fork] == FREE]
    return "\n".join([*lines, f"Free forks: {', '.join(free) or 'none'}"])


def _sides(seat: int, seats: int) -> tuple[tuple[str, int], tuple[str, int]]:
    return (LEFT, seat), (RIGHT, (seat + 1) % seats)


def table_compact(
    table: Table, eaten: Sequence[int], said: Sequence[Utterance], seen: Iterable[int]
) -> str:
    """Return three signs per philosopher that is seen, beginning with the reader.

    They are: meals eaten; the fork held, `L`, `R` or `.`; the last sign of the latest message.
    """
    signs: list[str] = []
    for seat in seen:
        side = next((s for s, f in _sides(seat, len(said)) if table.forks[f] == seat), ".")
        signs.append(f"{eaten[seat]}{side[0].upper()}{said[seat].text[-1:] or '.'}")
    return "".join(signs)


def choices_text(choices: Choices, seen: Iterable[int]) -> str:
    """Return the line on the last turn, with its line break; empty before the second turn."""
    if not choices:
        return ""
    return f"\nLast turn: {', '.join(f'philosopher {s} {choices[s]}' for s in sorted(seen))}."


def level_text(table: Table) -> str:
    """Return a table in the format that `parse_level` reads."""
    forks = (("." if holder == FREE else str(holder)) for holder in table.forks)
    return f"{' '.join(map(str, table.hunger))} / {' '.join(forks)}"


def parse_levels(text: str) -> list[Level]:
    """Read a file of levels, one per line; errors name the line."""
    lines = enumerate(text.split("\n"), 1)
    levels = [_parse_line(line, number) for number, line in lines if line.strip()]
    if not levels:
        raise LevelFormatError("the file holds no level", allowed=_FORMAT)
    return levels


def parse_level(text: str) -> Level:
    """Read a level such as `1 0 2 / . 1 .`, strictly.

    Raises:
        LevelFormatError: If it is not of that form, a fork is held by somebody who does not sit
            next to it, somebody begins with two forks, or there is nothing to do or to be done.
    """
    if len(text.strip().split("\n")) != 1:
        raise LevelFormatError("a level is one line", allowed=_FORMAT)
    return _parse_line(text, 1)


def _parse_line(line: str, number: int) -> Level:
    sides = [side.split() for side in line.split("/")]
    if len(sides) != 2 or len(sides[0]) != len(sides[1]):
        raise LevelFormatError("not as many meals as forks", number, allowed=_FORMAT)
    meals, holders = sides
    seats = len(meals)
    if not MIN_SEATS <= seats <= MAX_SEATS:
        allowed = f"{MIN_SEATS} to {MAX_SEATS} philosophers"
        raise LevelFormatError(f"{seats} philosophers", number, allowed=allowed)
    if not all(re.fullmatch(f"[0-{MAX_MEALS}]", one) for one in meals):
        raise LevelFormatError("unknown meals", number, allowed=f"0 to {MAX_MEALS} for each")
    for fork, holder in enumerate(holders):
        if holder not in (".", str(fork), str((fork - 1) % seats)):
            allowed = f"., {fork} or {(fork - 1) % seats}"
            raise LevelFormatError(f"fork {fork} is held by {holder!r}", number, allowed=allowed)
    forks = tuple(FREE if holder == "." else int(holder) for holder in holders)
    table = Table(forks, tuple(map(int, meals)))
    if any(forks.count(seat) == 2 for seat in range(seats)):
        raise LevelFormatError("somebody holds two forks", number, allowed=_FORMAT)
    schedule = shortest_schedule(table)
    if not schedule:
        raise LevelFormatError("a deadlock, or nobody is hungry", number, allowed=_FORMAT)
    return Level(table, len(schedule))
