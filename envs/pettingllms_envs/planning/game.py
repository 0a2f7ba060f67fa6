"""What a game supplies: pure functions over its own levels and positions, and words for prompts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from pettingllms.transition import ParseError

Moves: TypeAlias = tuple[Any, ...]
"""Moves of a game, each an immutable value."""

POLICIES = ("oracle", "greedy", "random")
"""The scripted policies: an optimal plan, a rule that looks one move ahead, random legal moves."""


class Rules(NamedTuple):
    """A game as pure functions; a level has a `start` position and its length `shortest`."""

    read: Callable[[str], Moves | ParseError]
    """Text of an agent -> moves. Never raises."""
    read_printed: Callable[[str], Moves | ParseError]
    """Output of a program -> moves. Never raises."""
    write: Callable[[Moves], str]
    """Moves -> JSON, as prompts show them and `read` reads them."""
    write_terse: Callable[[Moves], str]
    """Moves -> the shortest text that `read` reads."""
    after: Callable[[Any, Any, Any], Any]
    """(level, position, move) -> the position after it; None if the move is illegal."""
    distance: Callable[[Any, Any], int]
    """(level, position) -> the minimum number of moves to the goal."""
    plan: Callable[[Any, Any, str, int, random.Random], Moves]
    """(level, position, scripted policy, maximum number of moves, chance) -> its moves."""
    as_input: Callable[[Any, Any], str]
    """(level, position) -> what a program reads from stdin."""


class Words(NamedTuple):
    """What the prompts of a game say."""

    task: str
    """One sentence: what is to be done."""
    rules: str
    """What a position and a move are."""
    situation: str
    """The present position, with placeholders of the game."""
    constant: str
    """What of the situation never changes in an episode; left out of updates."""
    program_input: str
    """What a program reads."""
    example: str
    """A list of moves, as JSON."""


class PlanningState(NamedTuple):
    """The state of an episode."""

    level: Any
    position: Any
    moves_used: int = 0
    """Moves executed so far; illegal moves do not count."""
    promised: Any = None
    """The position to which this turn's proposal would lead; None if there is none."""
    program: str = ""
    """The program of this turn, as the planner reads it."""
    result: str = ""
    """What the program did."""
    proposal: Moves = ()
    """The moves proposed this turn."""
    unchanged: str = ""
    """Why the last turn changed nothing, for the next prompts; empty if it changed something."""
