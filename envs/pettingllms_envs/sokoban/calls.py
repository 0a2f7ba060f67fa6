"""`tool="call"`: the helper functions of a tool agent, parsed and answered, never executed."""

from __future__ import annotations

import re
from typing import TypeAlias

from pettingllms.parsing import Item, one_line
from pettingllms.types import ParseError
from pettingllms_envs.grid import deltas_of, moves_json, moves_of_items, shortest_walk
from pettingllms_envs.planning.calls import CALL_CHARS, RESULT_CHARS, bounded, read_several
from pettingllms_envs.planning.game import Calls, ToolWork
from pettingllms_envs.sokoban.drawn import outlook_at, play_at, warehouse_of
from pettingllms_envs.sokoban.rules import Level, Placement

HelperCall: TypeAlias = tuple[str, ...]
"""("walk", row, col), ("push", row, col, direction, count) or ("move", moves as letters)."""

_WHOLE = re.compile(r"[0-9]{1,3}")


def read_calls(text: str) -> tuple[HelperCall, ...] | ParseError:
    """Read the calls of an answer; see `read_several`."""
    return read_several(text, ("walk", "push", "move"), _call_of)


def _call_of(name: str, arguments: list[Item]) -> HelperCall | None:
    if name == "move":
        moves = moves_of_items(arguments)
        return None if isinstance(moves, ParseError) else (name, moves)
    words = [argument for argument in arguments if isinstance(argument, str)]
    if len(words) != len(arguments) or not all(map(_WHOLE.fullmatch, words[:2] + words[3:])):
        return None
    if name == "walk":
        return (name, *words) if len(words) == 2 else None
    direction = moves_of_items([*words[2:3]])
    if len(words) not in (3, 4) or isinstance(direction, ParseError) or len(direction) != 1:
        return None
    return (name, *words[:2], direction, words[3] if len(words) == 4 else "1")


def answer(
    level: Level, place: Placement, calls: tuple[HelperCall, ...], max_moves: int
) -> ToolWork:
    """Answer calls, one bounded line each; each begins where the one before ended.

    Args:
        level: The level.
        place: Where player and boxes are.
        calls: What `read_calls` returned.
        max_moves: The maximum number of moves of a list that are made; further ones are not.
    """
    moves, num_cut = "", 0
    lines: list[str] = []
    asked: list[str] = []
    for name, *arguments in calls:
        words = [moves_json(arguments[0])] if name == "move" else arguments
        shown = bounded(f"{name}({', '.join(words)})", CALL_CHARS)
        answers = {"walk": _walk, "push": _push, "move": _move}
        if level.rules:
            answers |= {"walk": _walk_by_rules, "push": _push_by_rules}
        found = answers[name](level, place, arguments)
        asked.append(shown)
        if found.startswith("none"):
            lines.append(f"{shown} = {found}")
            continue
        if name == "move":
            num_cut += max(0, len(found) - max_moves)
            found = found[:max_moves]
        place, _, num_illegal, _ = play_at(level, place, found)
        moves += found
        end = _end(level, place, num_illegal)
        lines.append(f"{shown} = {bounded(moves_json(found), RESULT_CHARS)}, {end}")
    result = "\n".join(lines)
    lack = "" if moves else f"no call gave moves: {one_line(result, RESULT_CHARS)}"
    return ToolWork(moves, "; ".join(asked), result, lack, num_cut)


def _end(level: Level, place: Placement, num_illegal: int) -> str:
    row, col = divmod(place.player, level.stride)
    text = f"then the player is at ({row}, {col})"
    if num_illegal:
        text += f" ({num_illegal} of the moves illegal)"
    if place.boxes == level.goals:
        return text + " and the level is solved"
    if outlook_at(level, place).pushes_left < 0:
        return text + (" and the level is lost" if level.rules else " and a box is stuck for good")
    home = (place.boxes & level.goals).bit_count()
    return f"{text} and {home} of {level.goals.bit_count()} boxes are on goals"


def _cell(level: Level, row: int, col: int) -> int | None:
    inside = 0 <= row < level.rows and 0 <= col < level.cols
    return row * level.stride + col if inside else None


def _walk(level: Level, place: Placement, arguments: list[str]) -> str:
    cell, free = _cell(level, int(arguments[0]), int(arguments[1])), level.floor & ~place.boxes
    if cell is None or not free >> cell & 1:
        return "none: that cell is not free"
    moves = shortest_walk(free, place.player, cell, level.stride)
    if moves is None:
        return "none: that cell cannot be reached without pushing"
    return moves or "none: the player stands there"


def _push(level: Level, place: Placement, arguments: list[str]) -> str:
    cell = _cell(level, int(arguments[0]), int(arguments[1]))
    if cell is None or not place.boxes >> cell & 1:
        return "none: there is no box on that cell"
    move, count = arguments[2], int(arguments[3])
    delta, free = deltas_of(level.stride)[move], level.floor & ~place.boxes
    if not free >> cell - delta & 1:
        return "none: the cell behind the box is not free"
    way = shortest_walk(free, place.player, cell - delta, level.stride)
    if way is None:
        return "none: the player cannot get behind the box"
    room = 0
    while room < count and free >> cell + (room + 1) * delta & 1:
        room += 1
    if room < count or count == 0:
        return f"none: the box can be pushed {room} cells {move}"
    return way + move * count


def _walk_by_rules(level: Level, place: Placement, arguments: list[str]) -> str:
    cell = _cell(level, int(arguments[0]), int(arguments[1]))
    ways = warehouse_of(level).walks(place)
    way = next((way for at, way in ways.items() if at.player == cell), None)
    if way is None:
        return "none: that cell cannot be reached without pushing"
    return way or "none: the player stands there"


def _push_by_rules(level: Level, place: Placement, arguments: list[str]) -> str:
    cell = _cell(level, int(arguments[0]), int(arguments[1]))
    move, count = arguments[2], int(arguments[3])
    if cell is None or not place.boxes >> cell & 1 or not count:
        return "none: there is no box on that cell" if count else "none: no push"
    behind, house = cell - deltas_of(level.stride)[move], warehouse_of(level)
    way = next((way for at, way in house.walks(place).items() if at.player == behind), None)
    if way is None:
        return "none: the player cannot get behind the box"
    _, _, _, num_pushes = house.play(place, way + move * count)
    if num_pushes < count:
        return f"none: the box can be pushed {num_pushes} times {move}"
    return way + move * count


def _move(level: Level, place: Placement, arguments: list[str]) -> str:
    return arguments[0] or "none: no moves"


CALLS = Calls[Level, Placement, tuple[HelperCall, ...]](
    read=lambda level, text: read_calls(text), answer=answer, write="move"
)
