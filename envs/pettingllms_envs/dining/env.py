"""`DiningEnv`: the shell around the table of the philosophers; their texts and policies."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Unpack

from pettingllms.arguments import check_whole
from pettingllms.env import MAX_TURNS, PlaceholderEnv, ShellArguments
from pettingllms.errors import InvalidArgument, LevelFormatError, counted
from pettingllms.hooks import Difficulty
from pettingllms.pages import page
from pettingllms.parsing import one_line, read_phrase
from pettingllms.prompts import TURN, PromptField, PromptTemplate, meanings, of_state, templates_in
from pettingllms.types import ParseError, Transition, to_jsonable
from pettingllms_envs.dining.rules import (
    CHOICES,
    FREE,
    LEFT,
    MAX_MEALS,
    MAX_SEATS,
    MAX_SIGHT,
    MIN_SEATS,
    RELEASE,
    RIGHT,
    WAIT,
    Choices,
    Level,
    Request,
    Table,
    after,
    canonical_form,
    generate,
    held,
    is_deadlock,
    is_possible,
    shortest_schedule,
)
from pettingllms_envs.level_files import read_level_option, read_levels, read_lines
from pettingllms_envs.reward import LOST, SUCCESS, Costs, costs, fault_text, shaped
from pettingllms_envs.team_table import constant_fields, of_seat, seat_of

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
    """One of `CHOICES`."""
    message: str = ""
    """What is said; empty if nothing."""


class Utterance(NamedTuple):
    """The latest message of a philosopher."""

    turn: int
    """Number of the turn, from 1; 0 if nothing was said."""
    text: str = ""
    """What was said, in `MAX_MESSAGE` characters at most; empty if nothing."""


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
    return read_lines(text, parse_level, _FORMAT)


def parse_level(text: str, number: int = 1) -> Level:
    """Read a level such as `1 0 2 / . 1 .`, strictly; errors name the line of this number.

    Raises:
        LevelFormatError: If it is not of that form, a fork is held by somebody who does not sit
            next to it, somebody begins with two forks, or there is nothing to do or to be done.
    """
    if len(text.strip().split("\n")) != 1:
        raise LevelFormatError("a level is one line", allowed=_FORMAT)
    sides = [side.split() for side in text.split("/")]
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
    """What the episode has begun with."""
    table: Table
    """The table at the start of the turn, whatever the first philosophers have chosen."""
    turns_left: int
    """Turns of the episode that are left, the present one included."""
    said: tuple[Utterance, ...]
    """The latest message of each philosopher."""
    choices: Choices = ()
    """What those who have acted in this turn have chosen, in the order of their seats."""
    last: Choices = ()
    """What all chose in the turn before; empty in the first one."""

    @property
    def eaten(self) -> tuple[int, ...]:
        """Meals that each has eaten, of those that count."""
        pairs = zip(self.level.start.hunger, self.table.hunger, strict=True)
        return tuple(need - left for need, left in pairs)


def _need(state: DiningState, seat: int) -> str:
    left = state.table.hunger[seat]
    return f"philosopher {seat} needs {counted(left, 'more meal')}"


def placeholders(sight: int) -> dict[str, PromptField[DiningState]]:
    """The placeholders of philosophers who see so many places to each side."""

    def seen(state: DiningState, seat: int) -> list[int]:
        return within(seat, sight, len(state.said))

    return {
        "table": of_seat(
            "a line per philosopher in sight, and the free forks among theirs",
            lambda state, seat: table_text(state.table, state.eaten, state.said, seen(state, seat)),
        ),
        "table_compact": of_seat(
            "meals eaten, fork held and last sign said of each philosopher in sight, reader first",
            lambda state, seat: table_compact(
                state.table, state.eaten, state.said, seen(state, seat)
            ),
        ),
        "need": of_seat("the meals that the reader has still to eat", _need),
        "need_compact": of_seat(
            "the same as a digit", lambda state, seat: state.table.hunger[seat]
        ),
        "seat": of_seat("the reader's number", lambda state, seat: seat),
        "left": of_seat("the number of the reader's left fork", lambda state, seat: seat),
        "right": of_seat(
            "the number of the reader's right fork",
            lambda state, seat: (seat + 1) % len(state.said),
        ),
        "last": of_seat(
            "a line on what those in sight chose last turn; begins with a line break if not empty",
            lambda state, seat: choices_text(state.last, seen(state, seat)),
        ),
        "turn": TURN,
        "turns_left": of_state("turns left, with the present one", lambda state: state.turns_left),
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


_FAULT = "a choice that is not possible"
_MESSAGE = 0.01
"""What a message in every turn of an episode costs."""

STARVED = 2 * LOST
"""The potential when time is too short. It is below that of a deadlock: a team that is paid for
avoiding deadlocks learns to do nothing (arXiv 2606.07845)."""


def _costs_text(turn_costs: Costs, message: float, reward: str) -> str:
    text = fault_text(turn_costs, _FAULT, "a solved task", reward)
    return text if reward == "outcome" else f"{text[:-1]}; each message {-message:.3g}."


def potential(table: Table, turns_left: int, shortest: int) -> float:
    """The potential of a table, in [-0.02, 0.1].

    It is that of `shaped` for the turns of a shortest schedule, `LOST` in a deadlock, and
    `STARVED` as soon as fewer turns are left than a shortest schedule takes.
    """
    schedule = shortest_schedule(table)
    if schedule is None:
        return LOST
    return STARVED if len(schedule) > turns_left else shaped(len(schedule), shortest)


def _far(philosophers: int) -> dict[str, int]:
    """A level at which words have to be passed on, and no fixed turns are fast enough."""
    return {"philosophers": philosophers, "meals": 4, "min_turns": 9, "max_turns": 13, "sight": 2}


@page(philosophers=4, split="test")
class DiningEnv(PlaceholderEnv[DiningState]):
    """Share forks with neighbours who choose at the same time, so that everybody eats.

    ## Task

    Philosophers sit around a table with one fork between each two. A meal takes both forks of a
    philosopher, who takes one a turn. All choose at the same time, and a fork for which two reach
    goes to neither. Everybody needs a number of meals that no one else knows; messages are short
    and cost a little. The task is solved when everybody has eaten; it has failed when everybody
    holds one fork (deadlock), and somebody starves if turns run out. Every level can be solved
    by those who know only what they see and hear: it leaves the turns that it takes to say, and to
    pass on, what everybody needs, before all follow a shortest schedule.

    ## Agents and roles

    `philosopher_0`, `philosopher_1`, ...: one stage, so that each acts on the table at the start
    of the turn. They have one role and equal prompts; what differs is where they sit. Philosopher
    i has fork i on the left and fork i + 1 (modulo their number) on the right.

    ## Observation

    The rules, the turn, which philosopher the reader is and how much the reader has to eat; of
    everybody in sight the meals eaten, the fork held, the choice of the turn before and the latest
    message. `prompt_fields` lists the placeholders of prompts; those of the need are private.

    ## Action

    One word: `#### left`, `right` (take that fork), `release` (put down what one holds) or
    `wait`; `take left` and the letters L, R, D (down) and W are read too. A fork that is not free
    at the start of the turn cannot be taken. Whoever holds both forks at its end eats and puts
    them back. What is put down is free from the next turn on.

    After the choice, `say` and a message: `#### wait say I need 2` (behind a letter a digit: `W2`).
    Others read it from the next turn on, in quotation marks: letters, digits and common signs in
    one line, cut to 60 characters.

    ## Reward

    d is the number of turns of a shortest schedule, d0 that at the start. The potential is
    0.1 * (1 - d / d0) up to d0 and 0.01 * (d0 / d - 1) beyond it; it is -0.01 in a deadlock, and
    -0.02 as soon as fewer turns are left than d. T is `max_turns`.

    | part | when | value |
    |---|---|---|
    | team | the last philosopher has chosen | rise of the potential |
    | team | everybody has eaten | +1 |
    | local | unreadable text | -0.05 / T |
    | local | reaching for a fork that is held, releasing nothing | -0.04 / T |
    | local | a message | -0.01 / T |

    Doing nothing pays less than any attempt: time that runs out is worse than a deadlock. With
    alpha=1 the return of every agent is in [1.05, 1.1] in a solved episode and in [-0.07, 0) in
    an unsolved one; a team part lies in [-0.12, 1.12], a local part in [-0.05 / T, 0].

    ## Termination

    Terminated when everybody has eaten (`success`) and in a deadlock; truncated after `max_turns`
    turns.

    ## Info keys

    - `choice`: what the philosopher chose; `wait` for an unreadable text.
    - `message`: what the philosopher said; empty if nothing.
    - `meals_left`: meals still to eat, of all.
    - `distance`: turns of a shortest schedule from here; -1 in a deadlock.
    - `shortest`: turns of a shortest schedule of the level.
    - `deadlock`: whether everybody holds one fork.

    From `meals_left` on they are about the table after the turn, and all philosophers have them as
    soon as the last one has chosen.

    ## Arguments

    - `philosophers`: number of philosophers, 2 to 12.
    - `meals`: maximum number of meals of one philosopher, 1 to 4.
    - `min_turns`: minimum number of turns of a shortest schedule.
    - `max_turns`: turns of an episode; a shortest schedule leaves at least
      `philosophers` // 2 / `sight` of them, rounded up, to talk in.
    - `sight`: philosophers to each side whom one sees and hears, 1 to 6.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a level's content up
      to rotation and reflection of the table.
    - `levels`: levels to draw from instead of generating: a path or pattern of files with one
      level per line, or a list of level texts (`1 0 2 / . 1 .`: meals / holders of the forks);
      `split` and the ranges do not apply to them. `reset(options={"level": text})` sets one
      episode's level.
    - `prompts`: role -> replacement of its prompt; without `####` in it, the scripted policies
      answer with a letter, which is all that a tiny model needs to write.

    ## Source

    Dijkstra's dining philosophers, as in "GRPO Does Not Close the Multi-Agent Coordination Gap"
    (arXiv 2606.07845). That paper found its reward to have a maximum at zero actions; here doing
    nothing pays least. Changed: everybody has a number of meals to eat and alone knows it, talk is
    possible and costs, tables differ from level to level, are certified by a shortest schedule and
    split by content.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "dining_v0",
        "render_modes": ["ansi", "human"],
        "unseen_arguments": ("min_turns", "sight"),
    }
    scripted_policies: ClassVar[tuple[str, ...]] = (
        "oracle",
        "talk",
        "alternate",
        "greedy",
        "random",
        "wait",
    )
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"philosophers": 4, "meals": 2, "max_turns": 16},
            "medium": {"philosophers": 6, "meals": 4, "max_turns": 14},
            "hard": {"philosophers": 8, "meals": 4, "min_turns": 8, "max_turns": 12},
            "expert": _far(10),
            "extreme": _far(12),
        },
        toys={"easy": 6},
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = templates_in(
        "pettingllms_envs.dining"
    )
    prompt_fields: ClassVar[Mapping[str, str]] = {**meanings(placeholders(MAX_SIGHT)), **LIMITS}
    private_fields: ClassVar[tuple[str, ...]] = ("need", "need_compact")

    def __init__(
        self,
        *,
        philosophers: int = 6,
        meals: int = 4,
        min_turns: int = 2,
        max_turns: int = 14,
        sight: int = MAX_SIGHT,
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        **shell: Unpack[ShellArguments],
    ) -> None:
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        self._request = Request(philosophers, meals, min_turns, max_turns, sight, split).checked()
        super().__init__(
            stages=[[f"philosopher_{seat}" for seat in range(self._request.philosophers)]],
            max_turns=max_turns,
            **shell,
        )
        self._costs, self._price = costs(max_turns, 1), -_MESSAGE / max_turns
        # Prompts say how far words go, since passing them on is part of the task.
        near = f"those who sit up to {sight} places away read it"
        listeners = "everybody reads it" if sight >= philosophers // 2 else near
        # Prompts say what counts: an agent cannot mind a cost that it has never read.
        costs_text = _costs_text(self._costs, self._price, self.reward)
        limits = (philosophers, meals, max_turns, MAX_MESSAGE, listeners, costs_text)
        # Of the argument, and not of the state: what is out of sight is not in any placeholder.
        self._placeholders = placeholders(self._request.sight) | constant_fields(LIMITS, limits)
        self.board = f"{philosophers} philosophers"
        given = () if levels is None else read_levels(levels, parse_levels, parse_level)
        self._levels = tuple(map(self._fitting, given))

    def _fitting(self, level: Level) -> Level:
        request, hunger, needed = self._request, level.start.hunger, level.shortest
        # A level of a file has to fit the prompts, which say how many sit there and what they need.
        is_small = max(hunger) <= request.meals and needed <= self.max_turns
        if len(hunger) != request.philosophers or not is_small:
            raise InvalidArgument(
                "level",
                f"{len(hunger)} philosophers with up to {counted(max(hunger), 'meal')} in "
                f"{counted(needed, 'turn')}",
                f"{request.philosophers} philosophers with up to {counted(request.meals, 'meal')} "
                f"in at most {counted(self.max_turns, 'turn')}",
                "Change philosophers, meals or max_turns.",
            )
        return level

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> DiningState:
        if options.get("level") is not None:
            level = self._fitting(read_level_option(options["level"], parse_level))
        elif self._levels:
            level = rng.choice(self._levels)
        else:
            level = generate(rng, self._request)
        return DiningState(
            level, level.start, self.max_turns, (Utterance(0),) * len(level.start.forks)
        )

    def _parse(self, state: DiningState, agent: str, text: str) -> Move | ParseError:
        return read_move(text)

    def _act(self, state: DiningState, agent: str, action: Move | ParseError) -> Transition:
        seat = seat_of(agent)
        local = self._cost(state.table, seat, action)
        choice, message = Move(WAIT) if isinstance(action, ParseError) else action
        said = list(state.said)
        if message:
            said[seat] = Utterance(self.max_turns - state.turns_left + 1, message)
        # A choice stays out of the table until all have chosen: nobody can react to it.
        state = state._replace(choices=(*state.choices, choice), said=tuple(said))
        info = {"choice": choice, "message": message}
        if len(state.choices) < len(self.possible_agents):
            return Transition(state, local=local, info=info)
        return self._served(state, local, info)

    def _served(self, state: DiningState, local: float, info: Mapping[str, Any]) -> Transition:
        """What a turn does, now that everybody has chosen."""
        table = after(state.table, state.choices)
        turns_left, shortest = state.turns_left - 1, state.level.shortest
        following = DiningState(state.level, table, turns_left, state.said, last=state.choices)
        solved = not any(table.hunger)
        # By differences, so that an episode adds up to the potential of its end, whatever the way.
        rise = potential(table, turns_left, shortest)
        rise -= potential(state.table, state.turns_left, shortest)
        ended, facts = solved or is_deadlock(table), self._facts(following)
        return Transition(following, rise + SUCCESS * solved, local, ended, solved, info, facts)

    def _cost(self, table: Table, seat: int, action: Move | ParseError) -> float:
        if isinstance(action, ParseError):
            return self._costs.malformed
        # A fork that a neighbour gets is bad luck and costs nothing; one that is held was in sight.
        cost = 0.0 if is_possible(table, seat, action.choice) else self._costs.empty
        return cost + self._price * bool(action.message)

    def _facts(self, state: DiningState) -> dict[str, Any]:
        schedule = shortest_schedule(state.table)
        return {
            "meals_left": sum(state.table.hunger),
            "distance": -1 if schedule is None else len(schedule),
            "shortest": state.level.shortest,
            "deadlock": is_deadlock(state.table),
        }

    def _ansi(self, state: DiningState) -> str:
        return level_text(state.table)

    def _level_json(self, state: DiningState) -> str:
        return canonical_form(state.table).decode()

    def _key_json(self, state: DiningState) -> Any:
        return to_jsonable((state.level, state.table, state.turns_left, state.choices))

    def _scripted(self, state: DiningState, agent: str, policy: str, rng: random.Random) -> str:
        seat, turn = seat_of(agent), self.max_turns - state.turns_left
        if policy == "talk":
            near = within(seat, self._request.sight, len(state.said))
            heard = {other: state.said[other].text for other in near}
            move = Move(*talk(state.table, turn, state.eaten, seat, heard))
        else:
            move = Move(choice_of(state.table, turn, seat, policy, rng))
        if self._is_marked(agent):
            return f"#### {move.choice}" + f" say {move.message}" * bool(move.message)
        return terse(move)
