"""Tables and choices as text: what philosophers read and write, and the level format."""

from __future__ import annotations

import re

from pettingllms.errors import LevelFormatError
from pettingllms.parsing import one_line
from pettingllms.phrases import read_phrase
from pettingllms.transition import ParseError
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
    shortest_schedule,
)

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
_FORMAT = "'1 0 2 / . 1 .': meals of each philosopher / holder of each fork, . if it is free"


def read_choice(text: str) -> str | ParseError:
    """Read the choice of an answer: a word of `CHOICES`, or a letter of `LETTERS`.

    Verbs and nouns around a word are read too: `take the left fork`, `put down`.
    """
    return read_phrase(text, _choice_in, needs_mark=False)


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


def terse(choice: str) -> str:
    """Return the letter of a choice."""
    return next(letter.upper() for letter, word in LETTERS.items() if word == choice)


def table_text(table: Table) -> str:
    """Return one line per philosopher: meals to eat and forks held, and the free forks."""
    seats = len(table.forks)
    lines: list[str] = []
    for seat, meals in enumerate(table.hunger):
        sides = [side for side, fork in _sides(seat, seats) if table.forks[fork] == seat]
        holds = f"holds the {sides[0]} fork" if sides else "holds no fork"
        lines.append(f"philosopher {seat}: {meals} to eat, {holds}")
    free = [str(fork) for fork, holder in enumerate(table.forks) if holder == FREE]
    return "\n".join([*lines, f"Free forks: {', '.join(free) or 'none'}"])


def _sides(seat: int, seats: int) -> tuple[tuple[str, int], tuple[str, int]]:
    return (LEFT, seat), (RIGHT, (seat + 1) % seats)


def table_compact(table: Table, seat: int) -> str:
    """Return a table as seen from a seat: meals and holders, beginning with that philosopher.

    Holders are counted from that philosopher too: 0 is the reader, 1 the next on the right.
    """
    seats = len(table.forks)
    order = [(seat + step) % seats for step in range(seats)]
    holders = (table.forks[fork] for fork in order)
    shown = ("." if holder == FREE else str((holder - seat) % seats) for holder in holders)
    return "".join(str(table.hunger[one]) for one in order) + "".join(shown)


def choices_text(choices: Choices) -> str:
    """Return the line on the last turn, with its line break; empty before the second turn."""
    said = ", ".join(f"philosopher {seat} {choice}" for seat, choice in enumerate(choices))
    return f"\nLast turn: {said}." if choices else ""


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
