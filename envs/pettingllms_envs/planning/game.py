"""What a game supplies to the protocol of proposals, and the values that pass between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pettingllms.types import ParseError

LevelT = TypeVar("LevelT")
PositionT = TypeVar("PositionT")
AnswerT = TypeVar("AnswerT")
MovesT = TypeVar("MovesT")
CallsT = TypeVar("CallsT")


class PlanningState(NamedTuple):
    """The state of an episode."""

    level: Any
    position: Any
    """What moves change: an immutable value of the game."""
    moves_used: int = 0
    """Moves executed so far; illegal moves do not count."""
    potential: float = 0.0
    """The potential of the position; after a proposal, of the position that it promises."""
    tool_call: str = ""
    """The tool agent's calls or program of this turn, as the planner reads it."""
    tool_result: str = ""
    """What came back."""
    proposal: Any = ()
    """The moves proposed this turn, as `Trial.kept`."""
    refused: str = ""
    """Which parts of the last answer were refused, for the next prompts; most games say nothing."""
    unchanged: str = ""
    """Why the last turn changed nothing, for the next prompts; empty if it changed something."""


class Trial(NamedTuple):
    """What an answer does to a position, or would do."""

    position: Any
    """The position afterwards."""
    potential: float
    """Its potential, in [-`PROGRESS`, `PROGRESS`]."""
    is_solved: bool
    kept: Any
    """The part of the answer that counts, as `Game.write` takes it: what a proposal proposes."""
    executed: Any = ()
    """The legal moves, in order; empty in games that do not count moves."""
    num_illegal: int = 0
    """Illegal moves or refused fills; each costs `Costs.illegal`."""
    unchanged: str = ""
    """Why the position is the same as before; empty if it is another."""
    refused: str = ""
    """See `PlanningState.refused`."""
    is_lost: bool = False
    """Whether the level certainly cannot be solved any more."""
    about: Any = None
    """What else `Game.facts` wants to know; the shell does not look at it."""


class ToolWork(NamedTuple):
    """What a tool agent's calls or program gave."""

    answer: Any
    """The moves that it found, as `Game.read` returns them; or a `ParseError`."""
    call: str = ""
    """What it asked for or wrote, bounded."""
    result: str = ""
    """What came back, bounded."""
    lack: str = ""
    """Why there are no moves, for the next prompt of a tool agent that works alone."""
    num_cut: int = 0
    """How many moves of too long lists were left out before the answer was put together."""
    is_useful: bool | None = None
    """Whether calls that are worth something without moves were answered and not all refused; None:
    the moves are judged like those of a proposer."""


@dataclass(frozen=True)
class Calls(Generic[LevelT, PositionT, CallsT]):
    """`tool="call"`: helper functions, whose calls are parsed and answered, never executed."""

    read: Callable[[LevelT, str], CallsT | ParseError]
    """(level, text) -> calls, an immutable value, or a `ParseError`. Never raises."""
    answer: Callable[[LevelT, PositionT, CallsT, int], ToolWork]
    """(level, position, calls, maximum number of moves) -> what they gave."""
    write: str
    """The name of the function that takes a list of moves, for scripted policies; empty: none."""


@dataclass(frozen=True)
class Game(Generic[LevelT, PositionT, AnswerT, MovesT]):
    """A game as pure functions. Levels and positions are immutable values of its own.

    An *answer* is what `read` returns for a readable text; *moves* are what `Trial.kept`, `plan`
    and `write` have in common. In most games both are the same tuple or text.
    """

    generate: Callable[[random.Random, Any], LevelT]
    """(chance, checked request) -> a level with a certificate."""
    start: Callable[[LevelT], PositionT]
    """Level -> its first position."""
    read_level: Callable[[str], LevelT]
    """Text -> level; raises `LevelFormatError`."""
    read_levels: Callable[[str], Sequence[LevelT]]
    """Text of a file -> its levels; raises `LevelFormatError`."""
    identity: Callable[[LevelT], str]
    """Level -> the same text for all images of the level under the symmetries of the game."""
    read: Callable[[LevelT, str], AnswerT | ParseError]
    """(level, text of planner or proposer) -> answer or `ParseError`. Never raises."""
    read_printed: Callable[[LevelT, str], AnswerT | ParseError]
    """(level, output of a program) -> answer or `ParseError`. Never raises."""
    attempt: Callable[[LevelT, PositionT, AnswerT, int], Trial]
    """(level, position, answer, maximum number of moves) -> what the answer does."""
    no_answer: AnswerT
    """The answer without any moves."""
    facts: Callable[[PlanningState, Trial, bool], dict[str, Any]]
    """(state before, trial, whether it is done and not only proposed) -> the game's own infos."""
    plan: Callable[[LevelT, PositionT, str, int, random.Random], MovesT]
    """(level, position, scripted policy, maximum number of moves, chance) -> moves."""
    write: Callable[[MovesT], str]
    """Moves -> JSON, as prompts show them and `read` reads them."""
    write_terse: Callable[[LevelT, MovesT], str]
    """(level, moves) -> the shortest text that `read` reads."""
    board: Callable[[LevelT, PositionT], str]
    """(level, position) -> text, for people."""
    program_input: Callable[[LevelT, PositionT], str]
    """(level, position) -> what a program reads from stdin, without the last line break."""
    length: Callable[[LevelT], int]
    """Level -> moves of its certified solution; 0 if none is known or moves are not counted."""
    calls: Calls[LevelT, PositionT, Any] | None = None
    """The helper functions, if the game has any."""


POLICIES = ("oracle", "greedy", "random")
"""Scripted policies that every game has: an optimal plan, a rule that plans nothing, random moves
that are legal."""


def make_moves(
    level: Any,
    position: Any,
    moves: Sequence[Any],
    after: Callable[[Any, Any, Any], Any],
    is_goal: Callable[[Any, Any], bool],
) -> tuple[Any, tuple[Any, ...], int]:
    """Make moves in order until the level is solved.

    Args:
        level: The level.
        position: The position before.
        moves: The moves.
        after: (level, position, move) -> the position after it; None if the move is illegal.
        is_goal: (level, position) -> whether the position solves the level.

    Returns:
        The position afterwards, the legal moves, and the number of illegal ones.
    """
    executed: list[Any] = []
    illegal = 0
    for move in moves:
        if is_goal(level, position):
            break
        following = after(level, position, move)
        if following is None:
            illegal += 1
        else:
            position = following
            executed.append(move)
    return position, tuple(executed), illegal


def why_unchanged(given: Sequence[Any], executed: Sequence[Any]) -> str:
    """Return why moves left the position as it was, for prompts.

    Args:
        given: The moves.
        executed: The legal ones among them.
    """
    if not given:
        return "the answer had no moves"
    return "the moves led back" if executed else "all moves were illegal"


def solution_facts(distance: int, shortest: int, moves_used: int) -> dict[str, Any]:
    """Return the infos of games whose distance to the goal is exact.

    Args:
        distance: Moves left.
        shortest: Moves of a shortest solution of the level.
        moves_used: Moves executed so far.
    """
    return {
        "distance": distance,
        "shortest": shortest,
        "moves_used": moves_used,
        "optimality": 0.0 if distance or not moves_used else shortest / moves_used,
    }
