"""`BlocksworldEnv`: Blocks World as a game with proposals, and the words of its prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack, cast

from pettingllms.errors import InvalidArgument
from pettingllms.hooks import Difficulty
from pettingllms.parsing import ListReader
from pettingllms.prompts import PromptField
from pettingllms_envs.blocksworld import rules, text
from pettingllms_envs.blocksworld.generator import MIN_MOVES, Request, generate
from pettingllms_envs.blocksworld.rules import Level, canonical_form
from pettingllms_envs.blocksworld.weights import Stacks
from pettingllms_envs.planning.env import (
    DUTIES_APART,
    LIMITS,
    ExactEnv,
    GameArguments,
    PlanningState,
    Words,
    field,
    page,
)

PROGRAM = """\
import heapq
import json
import sys

start, goal = ([tuple(stack) for stack in json.loads(line)] for line in list(sys.stdin)[:2])
below = {block: stack[:i] for stack in goal for i, block in enumerate(stack)}


def left(stacks):
    moves = 0
    for stack in stacks:
        wrong = set()
        for i, block in enumerate(stack):
            if wrong or below[block] != stack[:i]:
                moves += 1 if wrong.isdisjoint(below[block]) else 2
                wrong.add(block)
    return moves


heap, seen, number = [(0, 0, 0, tuple(sorted(start)), [])], set(), 0
while heap:
    _, _, cost, stacks, plan = heapq.heappop(heap)
    if sorted(goal) == list(stacks):
        print(json.dumps(plan))
        break
    if stacks in seen:
        continue
    seen.add(stacks)
    for stack in stacks:
        rest = [other for other in stacks if other != stack]
        targets = rest + [()] if len(stack) > 1 else rest
        for target in targets:
            after = [other for other in rest if other != target]
            after = tuple(sorted(filter(None, [*after, stack[:-1], target + stack[-1:]])))
            if after not in seen:
                number -= 1
                move = [stack[-1], target[-1] if target else "table"]
                entry = (cost + 1 + left(after), number, cost + 1, after, plan + [move])
                heapq.heappush(heap, entry)
"""
"""A* with the moves that misplaced blocks need at least; it knows no weights."""


WORDS = Words(
    goal="Build the stacks of the goal",
    rules=f"""\
Stacks are lists of blocks from bottom to top; their order does not matter. A move takes a block \
from the top of a stack and puts it on the table, where it starts a new stack, or on the block at \
the top of another stack: ["B","table"] or ["B","A"].
{LIMITS}""",
    user="""\
Turn {turn} of {max_turns}.{history}
The goal: {goal}
Stacks now: {stacks}""",
    update="""\
Turn {turn} of {max_turns}.{history}
Stacks now: {stacks}""",
    example='[["B","table"],["C","A"]]',
    program="""\
The program reads two lines from stdin: the stacks now and the goal, each as a JSON list of lists \
of blocks from bottom to top. It prints a JSON list of moves. Its answer is the last list that it \
prints, such as [["B","table"],["C","A"]].""",
    duties=DUTIES_APART,
)
WEIGHTS = WORDS._replace(
    rules=f"""\
Stacks are lists of blocks from bottom to top; their order does not matter. Every block has a \
weight and a load: all that stands on it, at whatever height, may weigh at most its load. A move \
takes a block with all that stands on it and puts it on the table, where it starts a new stack, or \
on the block at the top of another stack: ["B","table"] or ["B","A"]. What a move lifts is limited \
by weight, and the table has places for so many stacks.
{LIMITS}""",
    user="""\
Turn {turn} of {max_turns}.{history}
{weights}
The goal: {goal}
Stacks now: {stacks}""",
    program="""\
The program reads three lines from stdin: the stacks now and the goal, each as a JSON list of \
lists of blocks from bottom to top, and a JSON object with "weight" and "load", which are objects \
from block to number, and the numbers "lift" and "places". It prints a JSON list of moves. Its \
answer is the last list that it prints, such as [["B","table"],["C","A"]].""",
)
"""The words where blocks have weights."""
FIELDS: dict[str, PromptField[PlanningState]] = {
    "stacks": field(
        "the stacks now, as a JSON list of lists", lambda level, stacks: text.stacks_json(stacks)
    ),
    "goal": field(
        "the stacks of the goal, as a JSON list of lists",
        lambda level, stacks: text.stacks_json(level.goal),
    ),
    "weights": field(
        "weight and load of every block, and the limits of moves and table; empty without weights",
        lambda level, stacks: text.weights_text(level),
    ),
    "stacks_compact": field(
        "the stacks now as words: AC,B", lambda level, stacks: text.stacks_compact(stacks)
    ),
    "goal_compact": field(
        "the stacks of the goal as words", lambda level, stacks: text.stacks_compact(level.goal)
    ),
    "supports_compact": field(
        "for each block: what it is on now, what it is on in the goal, ! if it is on top, else .",
        text.supports_compact,
    ),
}


def plan(
    level: Level, stacks: Stacks, policy: str, num_moves: int, rng: random.Random
) -> tuple[str, ...]:
    """The moves of a scripted policy, at most `num_moves`, fewer only if they reach the goal.

    Oracle follows a shortest plan; greedy puts a block where it stays, if it can, and moves at
    random otherwise; random draws legal moves uniformly.
    """
    if policy == "oracle":
        return (rules.shortest_plan(stacks, level.goal, level.weights) or ())[:num_moves]
    moves: list[str] = []
    while len(moves) < num_moves and stacks != level.goal:
        legal = rules.legal_moves(stacks, level.weights)
        if policy == "greedy":
            done = [move for move in legal if _settles(level, stacks, move)]
            # Nothing settles while a block is in the way, and any move may free one.
            legal = done or legal
        moves.append(rng.choice(legal))
        stacks = cast("Stacks", _after(level, stacks, moves[-1]))
    return tuple(moves)


def _settles(level: Level, stacks: Stacks, move: str) -> bool:
    block, _ = move
    following = cast("Stacks", _after(level, stacks, move))
    foundation = rules.foundations(level.goal)[block]
    was_settled = any(stack.startswith(foundation) for stack in stacks)
    return not was_settled and any(stack.startswith(foundation) for stack in following)


def _after(level: Level, stacks: Stacks, move: str) -> Stacks | None:
    return rules.after(stacks, move, level.weights)


def _weighty(blocks: int) -> dict[str, Any]:
    """A level with weights, and hardly more moves than a shortest plan needs."""
    turns = {"max_turns": 2, "moves_per_turn": (blocks + 1) // 2}
    return {"blocks": blocks, "weights": True, "min_moves": blocks, **turns}


@page(blocks=5)
class BlocksworldEnv(ExactEnv):
    """Build given stacks of blocks, one block at a time.

    ## Task

    Blocks stand in stacks on a table. A move takes the top block of a stack and puts it on the
    table or on the top of another stack. The task is solved when the stacks are those of the
    goal. Every level can be solved within the turns of an episode.

    With `weights=True` every block has a weight and a load, the most that may stand on it; a move
    takes a block with all that stands on it, up to a weight that can be lifted, and the table has
    few places. All of these are drawn with the level.

    ## Observation

    The rules, the turn, why the last turn changed nothing if it did not, the goal and the stacks
    now; for the planner also what its team-mate did this turn. `prompt_fields` lists the
    placeholders of prompts.

    ## Action

    Planner and proposer: a list of moves, `#### [["B","table"],["C","A"]]`; also read are a list
    without `####` if it is the only one and ends the text, lower case, missing quotes, and bare
    pairs of characters (`B-CA`, `-` is the table). The first `moves_per_turn` moves are executed
    in order until the goal; an illegal move changes nothing.
    Tool: a program in a code block. It runs in the sandbox, reads the stacks and the goal from
    stdin (two lines of JSON; with weights, a third one) and prints a list of moves.

    ## Reward

    d is the length of a shortest plan from the stacks now, d0 that of the level. The potential is
    0.1 * (1 - d / d0) up to d0 and 0.01 * (d0 / d - 1) beyond it.

    ## Arguments

    - `blocks`: number of blocks, 3 to 12.
    - `weights`: whether weights, loads, the lift and the places on the table are drawn.
    - `min_moves`: minimum length of a shortest plan; None: 3, or `max_moves` if that is less.
    - `max_moves`: maximum length of a shortest plan; None: `max_turns * moves_per_turn`.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a level's content up
      to the names of blocks and the exchange of start and goal.
    - `levels`: levels to draw from instead of generating: a path or pattern of files with one
      level per line, or a list of level texts (`AC B -> ABC`, with weights `AC B -> ABC :
      A3/5 B1/0 C2/9 lift 4 places 2`); `split` and the ranges do not apply to them.
      `reset(options={"level": text})` sets one episode's level.

    ## Source

    The authors' code of Stronger-MAS (arXiv 2510.11062) has Blocks World beside the games of the
    paper. Changed: levels are generated, certified by shortest plans and split by content,
    several turns continue from the present stacks, and the reward is a potential instead of 0 or 1.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "blocksworld_v0",
        "render_modes": ["ansi", "human"],
    }
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"blocks": 4, "min_moves": 2, "max_moves": 4},
            "medium": {"blocks": 5, "min_moves": 4},
            "hard": {"blocks": 7, "min_moves": 7, "max_turns": 2, "moves_per_turn": 5},
            "expert": {"blocks": 9, "min_moves": 10, "max_turns": 2, "moves_per_turn": 6},
            "extreme": _weighty(9),
        },
        lambda k: _weighty(5 + k),
        last=6,
        toys={"easy": 13, "medium": 77},
    )
    fixed_program: ClassVar[str] = PROGRAM
    words = WORDS
    own_fields = FIELDS
    default_limits = (4, 10)
    _draw = staticmethod(generate)
    _read_level = staticmethod(text.parse_level)
    _read_level_file = staticmethod(text.parse_levels)
    _after = staticmethod(_after)
    _distance = staticmethod(rules.distance)
    _plan = staticmethod(plan)
    _write = staticmethod(text.moves_json)
    _board = staticmethod(text.level_text)

    @staticmethod
    def _is_goal(level: Level, stacks: Stacks) -> bool:
        return stacks == level.goal

    @staticmethod
    def _identity(level: Level) -> str:
        return canonical_form(level).decode()

    @staticmethod
    def _reader(level: Level) -> ListReader[tuple[str, ...]]:
        return text.READER

    @staticmethod
    def _write_terse(level: Level, moves: tuple[str, ...]) -> str:
        return text.moves_compact(moves)

    @classmethod
    def _program_input(cls, level: Level, position: Stacks) -> str:
        return text.program_input(level, position)

    def __init__(
        self,
        *,
        blocks: int = 5,
        weights: bool = False,
        min_moves: int | None = None,
        max_moves: int | None = None,
        moves_per_turn: int = 10,
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        **shell: Unpack[GameArguments],
    ) -> None:
        super().__init__(
            words=WEIGHTS if weights else WORDS,
            fields=FIELDS,
            moves_per_turn=moves_per_turn,
            **shell,
        )
        low, high = self._range_of_moves(min_moves, max_moves, MIN_MOVES)
        self._request = Request(blocks, low, high, split, weights).checked()
        self.board = f"{blocks} blocks" if levels is None else "levels"
        self._read_levels(levels)

    def _fitting(self, argument: str, level: Level) -> Level:
        has_weights = level.weights is not None
        if has_weights != self._request.weights:
            allowed = f"{has_weights} for {argument} {'with' if has_weights else 'without'} weights"
            raise InvalidArgument("weights", self._request.weights, allowed)
        return super()._fitting(argument, level)
