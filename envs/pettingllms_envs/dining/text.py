"""Tables, choices and messages as text; what philosophers read, and the scripted policies."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pettingllms.errors import LevelFormatError
from pettingllms.parsing import one_line, read_phrase
from pettingllms.prompts import PromptField
from pettingllms.types import ParseError
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
    Level,
    Table,
    held,
    is_possible,
    shortest_schedule,
)
from pettingllms_envs.team_table import seat_of

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
    # A line below a message is a remark: what is said to others is one line.
    if spoken and "\n" in spoken[0].strip():
        return ParseError("a message of several lines")
    choice = _choice_in(chosen.strip(" \t\n,;.:|").removesuffix(" and"))
    if isinstance(choice, ParseError):
        return choice
    return Move(choice, heard(spoken[0]) if spoken else "")


def heard(said: str) -> str:
    """What others read of a message: plain words in one line, cut to `MAX_MESSAGE`.

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
    """The letter of a choice, and the digit of its message."""
    letter = next(letter.upper() for letter, word in LETTERS.items() if word == move.choice)
    return letter + move.message[-1:]


def within(seat: int, sight: int, seats: int) -> list[int]:
    """The philosophers whom one sees and hears, oneself first, then to the right."""
    # Round the table both ways, and nobody twice at a small one.
    near = (step for step in range(seats) if min(step, seats - step) <= sight)
    return [(seat + step) % seats for step in near]


def table_text(
    table: Table, eaten: Sequence[int], said: Sequence[Utterance], seen: Iterable[int]
) -> str:
    """A line per philosopher that is seen, and the free forks among theirs."""
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
    """Three signs per philosopher that is seen, beginning with the reader.

    They are: meals eaten; the fork held, `L`, `R` or `.`; the last sign of the latest message.
    """
    signs: list[str] = []
    for seat in seen:
        side = next((s for s, f in _sides(seat, len(said)) if table.forks[f] == seat), ".")
        signs.append(f"{eaten[seat]}{side[0].upper()}{said[seat].text[-1:] or '.'}")
    return "".join(signs)


def choices_text(choices: Choices, seen: Iterable[int]) -> str:
    """The line on the last turn, with its line break; empty before the second turn."""
    if not choices:
        return ""
    return f"\nLast turn: {', '.join(f'philosopher {s} {choices[s]}' for s in sorted(seen))}."


def level_text(table: Table) -> str:
    """A table in the format that `parse_level` reads."""
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
    # Two forks are a meal at the end of a turn, never the start of one.
    if any(forks.count(seat) == 2 for seat in range(seats)):
        raise LevelFormatError("somebody holds two forks", number, allowed=_FORMAT)
    schedule = shortest_schedule(table)
    if not schedule:
        raise LevelFormatError("a deadlock, or nobody is hungry", number, allowed=_FORMAT)
    return Level(table, len(schedule))


class DiningState(NamedTuple):
    """The state of an episode."""

    level: Level
    table: Table
    turns_left: int
    said: tuple[Utterance, ...]
    """The latest message of each philosopher."""
    choices: Choices = ()
    """What the first philosophers have chosen in this turn."""
    last: Choices = ()
    """What all chose in the turn before."""

    @property
    def eaten(self) -> tuple[int, ...]:
        """Meals that each has eaten, of those that count."""
        pairs = zip(self.level.start.hunger, self.table.hunger, strict=True)
        return tuple(need - left for need, left in pairs)


def _need(state: DiningState, seat: int) -> str:
    left = state.table.hunger[seat]
    return f"philosopher {seat} needs {left} more meal{'s' * (left != 1)}"


def placeholders(sight: int) -> dict[str, PromptField[DiningState]]:
    """The placeholders of philosophers who see so many places to each side."""

    def seen(state: DiningState, agent: str) -> list[int]:
        return within(seat_of(agent), sight, len(state.said))

    return {
        "table": PromptField(
            "a line per philosopher in sight, and the free forks among theirs",
            lambda state, agent, turn: table_text(
                state.table, state.eaten, state.said, seen(state, agent)
            ),
        ),
        "table_compact": PromptField(
            "meals eaten, fork held and last sign said of each philosopher in sight, reader first",
            lambda state, agent, turn: table_compact(
                state.table, state.eaten, state.said, seen(state, agent)
            ),
        ),
        "need": PromptField(
            "the meals that the reader has still to eat",
            lambda state, agent, turn: _need(state, seat_of(agent)),
        ),
        "need_compact": PromptField(
            "the same as a digit", lambda state, agent, turn: state.table.hunger[seat_of(agent)]
        ),
        "seat": PromptField("the reader's number", lambda state, agent, turn: seat_of(agent)),
        "left": PromptField(
            "the number of the reader's left fork", lambda state, agent, turn: seat_of(agent)
        ),
        "right": PromptField(
            "the number of the reader's right fork",
            lambda state, agent, turn: (seat_of(agent) + 1) % len(state.said),
        ),
        "last": PromptField(
            "a line on what those in sight chose last turn; begins with a line break if not empty",
            lambda state, agent, turn: choices_text(state.last, seen(state, agent)),
        ),
        "turn": PromptField("the present turn, from 1", lambda state, agent, turn: turn + 1),
        "turns_left": PromptField(
            "turns left, with the present one", lambda state, agent, turn: state.turns_left
        ),
    }


LIMITS = {
    "philosophers": "number of philosophers",
    "meals": "maximum number of meals of one philosopher",
    "max_turns": "turns of the episode",
    "max_message": "longest message, in characters",
    "listeners": "who reads a message",
    "costs": "a sentence on what bad answers and messages cost",
}


_NEED = re.compile(r"(?:I need )?(\d{1,2})")


def choice_of(table: Table, turn: int, seat: int, policy: str, rng: random.Random) -> str:
    """What a philosopher chooses who does not talk, in a turn that is counted from 0.

    Oracle takes its part of a shortest schedule, the same for all. With alternate, even and odd
    seats eat in turns of two, the last seat of an odd number in a third one: no deadlock and no
    conflict, but much waiting if needs differ. Greedy takes the left fork if it is free, else the
    right one; random any possible choice.
    """
    if policy == "wait":
        return WAIT
    if policy == "random":
        return rng.choice([one for one in CHOICES if is_possible(table, seat, one)])
    if policy == "oracle":
        schedule = shortest_schedule(table)
        return schedule[0][seat] if schedule else WAIT
    is_mine = policy == "greedy" or _is_turn_of(seat, turn, len(table.forks))
    if not table.hunger[seat] or not is_mine:
        return RELEASE if held(table, seat) else WAIT
    return next((side for side in (LEFT, RIGHT) if is_possible(table, seat, side)), WAIT)


def _is_turn_of(seat: int, turn: int, seats: int) -> bool:
    is_odd_one = seats % 2 and seat == seats - 1
    return turn // 2 % (2 + seats % 2) == (2 if is_odd_one else seat % 2)


def talk(
    table: Table, turn: int, eaten: Sequence[int], seat: int, heard: Mapping[int, str]
) -> tuple[str, str]:
    """Choice and message of a philosopher who states their need and waits for the others'.

    Once all have said theirs, all know the same table and follow the same shortest schedule. Who
    does not hear from everybody plays alternate after the first words. Of the table's `hunger` only
    their own one is read; `heard` has the latest message of everybody in sight, oneself included.
    """
    # Only the agreed words are read: what else was said could be about another turn.
    said = {other: _NEED.fullmatch(text) for other, text in heard.items()}
    known = {other: int(found[1]) - eaten[other] for other, found in said.items() if found}
    # What was said in an earlier turn still holds, for `known` takes off what was eaten since.
    if known.get(seat) != table.hunger[seat]:
        return WAIT, f"I need {eaten[seat] + table.hunger[seat]}"
    hunger, policy = table.hunger, "alternate"
    if len(known) == len(hunger):
        hunger, policy = tuple(max(0, known[other]) for other in range(len(known))), "oracle"
    return choice_of(Table(table.forks, hunger), turn, seat, policy, random.Random(0)), ""
