"""`BlocksworldEnv`: Blocks World as a game with proposals; what its agents read and write."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Unpack, cast

from pettingllms.errors import InvalidArgument, LevelFormatError
from pettingllms.files import packaged_text
from pettingllms.hooks import Difficulty
from pettingllms.parsing import Item, one_line
from pettingllms.prompts import PromptField
from pettingllms.types import ParseError
from pettingllms_envs.blocksworld import rules
from pettingllms_envs.blocksworld.rules import (
    BLOCKS,
    MIN_MOVES,
    TABLE,
    Level,
    Request,
    Stacks,
    Weights,
    canonical_form,
    generate,
    shortest_plan,
    table,
)
from pettingllms_envs.level_files import read_lines
from pettingllms_envs.planning.env import (
    ExactEnv,
    GameArguments,
    PlanningState,
    field,
    page,
    pair_reader,
    words_in,
)

_FORMAT = "'AC B -> ABC': stacks from bottom to top, of the same blocks on both sides"
_WEIGHTS = re.compile(
    r"((?: [A-L][1-9][0-9]?/[0-9]{1,2})+) lift ([0-9]{1,3}) places ([0-9]{1,2})\s*"
)
_WITH_WEIGHTS = "'AC B -> ABC : A3/5 B1/0 C2/9 lift 4 places 2', weight and load of each block"
MAX_SEARCHED = 50_000
"""The most stacks that are looked at for the plan of a level that is given."""


# Agents of a turn and branches see the same stacks.
@lru_cache(maxsize=4096)
def stacks_json(stacks: Stacks) -> str:
    """Stacks as a JSON list of lists, each from bottom to top."""
    return "[" + ",".join(['["' + '","'.join(stack) + '"]' for stack in stacks]) + "]"


def stacks_compact(stacks: Stacks) -> str:
    """Stacks as words divided by commas: `AC,B`."""
    return ",".join(stacks)


def supports_compact(level: Level, stacks: Stacks) -> str:
    """Three characters per block, in alphabetical order.

    What it stands on now, what it stands on in the goal, and `!` if it is on top, else `.`.
    """
    now, goal = (_supports(one) for one in (stacks, level.goal))
    tops = {stack[-1] for stack in stacks}
    return "".join(now[one] + goal[one] + (".!"[one in tops]) for one in sorted(now))


def _supports(stacks: Stacks) -> dict[str, str]:
    return {high: low for stack in stacks for low, high in pairwise(TABLE + stack)}


def level_text(level: Level, stacks: Stacks) -> str:
    """A level, from given stacks on, in the format that `parse_level` reads."""
    text = f"{' '.join(stacks)} -> {' '.join(level.goal)}"
    if level.weights is None:
        return text
    pairs = " ".join(block + level.weights.pair(block) for block in sorted("".join(stacks)))
    return f"{text} : {pairs} lift {level.weights.lift} places {level.weights.places}"


def weights_text(level: Level) -> str:
    """The rules that were drawn with a level, for prompts; empty if there are none."""
    if level.weights is None:
        return ""
    pairs = ", ".join(f"{block} {level.weights.pair(block)}" for block in _blocks(level))
    return (
        f"Weight/load: {pairs}. A move lifts at most {level.weights.lift}. The table has "
        f"{level.weights.places} places."
    )


def program_input(level: Level, stacks: Stacks) -> str:
    """What a program reads: the stacks and the goal, each as a JSON list on a line.

    A third line holds the rules that were drawn with the level, if any, as a JSON object.
    """
    lines = [stacks_json(stacks), stacks_json(level.goal)]
    if level.weights is not None:
        weight, load, lift, places = level.weights
        of = {"weight": weight, "load": load}
        named = {name: dict(zip(BLOCKS, values, strict=False)) for name, values in of.items()}
        lines.append(json.dumps({**named, "lift": lift, "places": places}))
    return "\n".join(lines)


def _blocks(level: Level) -> list[str]:
    return sorted("".join(level.start))


def parse_levels(text: str) -> list[Level]:
    """Read a file of levels, one per line; errors name the line."""
    return read_lines(text, _parse_line, _FORMAT)


def parse_level(text: str) -> Level:
    """Read a level such as `AC B -> ABC`, strictly.

    Rules that are drawn with a level follow: `AC B -> ABC : A3/5 B1/0 C2/9 lift 4 places 2`.

    Raises:
        LevelFormatError: If it is not of that form, start and goal are the same, or they break the
            rules of the level or no plan is found under them.
    """
    if len(text.strip().split("\n")) != 1:
        raise LevelFormatError("a level is one line", allowed=_FORMAT)
    return _parse_line(text, 1)


def _parse_line(line: str, number: int) -> Level:
    line, colon, tail = line.partition(":")
    sides = line.split("->")
    if len(sides) != 2:
        raise LevelFormatError("there is not exactly one ->", number, allowed=_FORMAT)
    start, goal = (table(side.split()) for side in sides)
    blocks = sorted("".join(start))
    # Names without gaps: agents and canonical forms take the first letters for granted.
    if len(blocks) < 2 or blocks != list(BLOCKS[: len(blocks)]) or sorted("".join(goal)) != blocks:
        allowed = f"each of the first letters of {BLOCKS} once on both sides, at least 2"
        raise LevelFormatError("blocks are missing, unknown or repeated", number, allowed=allowed)
    if start == goal:
        raise LevelFormatError("the goal is reached at the start", number, allowed=_FORMAT)
    weights = _parse_weights(tail, blocks, number) if colon else None
    if weights is not None and not (weights.hold(start) and weights.hold(goal)):
        raise LevelFormatError("start or goal breaks the rules", number, allowed=_WITH_WEIGHTS)
    # Without weights there always is a plan; with them a search may have to give up.
    plan = shortest_plan(start, goal, weights, MAX_SEARCHED if weights else None)
    if plan is None:
        problem = f"no plan among the first {MAX_SEARCHED:,} stacks"
        raise LevelFormatError(problem, number, allowed="a level that can be solved, and certified")
    return Level(start, goal, len(plan), weights)


def _parse_weights(tail: str, blocks: list[str], number: int) -> Weights:
    found = _WEIGHTS.fullmatch(tail)
    pairs = [] if found is None else found[1].split()
    if found is None or [one[0] for one in pairs] != blocks:
        raise LevelFormatError("no rules for the blocks", number, allowed=_WITH_WEIGHTS)
    weight, load = zip(*(map(int, one[1:].split("/")) for one in pairs), strict=True)
    return Weights(weight, load, int(found[2]), int(found[3]))


def moves_json(moves: tuple[str, ...]) -> str:
    """Moves as JSON: `[["B","table"],["C","A"]]`."""
    named = [f'["{block}","{"table" if onto == TABLE else onto}"]' for block, onto in moves]
    return "[" + ",".join(named) + "]"


def moves_compact(moves: tuple[str, ...]) -> str:
    """Moves as pairs of characters: `B-CA`."""
    return "".join(moves)


def _move(item: Item) -> str | ParseError:
    if isinstance(item, list) and len(item) == 2 and all(isinstance(one, str) for one in item):
        block, onto = (str(one).upper() for one in item)
        onto = TABLE if onto == "TABLE" else onto
        if len(block) == len(onto) == 1 and block in BLOCKS and onto in BLOCKS + TABLE:
            return block + onto
    shown = one_line(str(item), 40)
    return ParseError(f"{shown} is not a move [block, block] or [block, table]")


def _made(block: str, onto: str) -> str:
    return block + (onto or TABLE)


READER = pair_reader(
    rf"(?:[{BLOCKS}][{BLOCKS}{TABLE}])+",
    rf'\["([{BLOCKS}])", ?"(?:table|([{BLOCKS}]))"\]',
    _made,
    _move,
)


WORDS, WEIGHTS = (words_in("pettingllms_envs.blocksworld", variant) for variant in ("", "weights"))
FIELDS: dict[str, PromptField[PlanningState]] = {
    "stacks": field(
        "the stacks now, as a JSON list of lists", lambda level, stacks: stacks_json(stacks)
    ),
    "goal": field(
        "the stacks of the goal, as a JSON list of lists",
        lambda level, stacks: stacks_json(level.goal),
    ),
    "weights": field(
        "weight and load of every block, and the limits of moves and table; empty without weights",
        lambda level, stacks: weights_text(level),
    ),
    "stacks_compact": field(
        "the stacks now as words: AC,B", lambda level, stacks: stacks_compact(stacks)
    ),
    "goal_compact": field(
        "the stacks of the goal as words", lambda level, stacks: stacks_compact(level.goal)
    ),
    "supports_compact": field(
        "for each block: what it is on now, what it is on in the goal, ! if it is on top, else .",
        supports_compact,
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
    # A* with the moves that misplaced blocks need at least; it knows no weights.
    fixed_program: ClassVar[str] = packaged_text("pettingllms_envs.blocksworld", "program.txt")
    words = WORDS
    own_fields = FIELDS
    default_limits = (4, 10)
    _answers = READER
    _canonical = staticmethod(canonical_form)
    _draw = staticmethod(generate)
    _read_level = staticmethod(parse_level)
    _read_level_file = staticmethod(parse_levels)
    _after = staticmethod(_after)
    _distance = staticmethod(rules.distance)
    _plan = staticmethod(plan)
    _write = staticmethod(moves_json)
    _board = staticmethod(level_text)

    @staticmethod
    def _is_goal(level: Level, stacks: Stacks) -> bool:
        return stacks == level.goal

    @staticmethod
    def _write_terse(level: Level, moves: tuple[str, ...]) -> str:
        return moves_compact(moves)

    @classmethod
    def _program_input(cls, level: Level, position: Stacks) -> str:
        return program_input(level, position)

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
