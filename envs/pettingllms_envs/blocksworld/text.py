"""Stacks and moves as text: what agents read and write, and the level format."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from itertools import pairwise

from pettingllms.errors import LevelFormatError
from pettingllms.parsing import Item, one_line
from pettingllms.types import ParseError
from pettingllms_envs.blocksworld.rules import Level, shortest_plan, table
from pettingllms_envs.blocksworld.weights import BLOCKS, TABLE, Stacks, Weights
from pettingllms_envs.planning.env import pair_reader

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
    lines = list(enumerate(text.split("\n"), 1))
    levels = [_parse_line(line, number) for number, line in lines if line.strip()]
    if not levels:
        raise LevelFormatError("the file holds no level", allowed=_FORMAT)
    return levels


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
