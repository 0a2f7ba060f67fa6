"""The turn of the tool agent: a program for the sandbox, or helper calls.

Calls are parsed and answered, never executed.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pettingllms.parsing import Item, answer_part, one_line
from pettingllms.parsing import read_calls as grammar_calls
from pettingllms.transition import ParseError, Transition
from pettingllms_envs.grid import moves_json, moves_of_items, read_printed_moves
from pettingllms_envs.python_tool import run_program, show_program
from pettingllms_envs.reward import with_reason
from pettingllms_envs.sokoban.rules import Level, SokobanState, deltas_of, guide_of, play
from pettingllms_envs.sokoban.search import shortest_walk
from pettingllms_envs.sokoban.text import shown_text
from pettingllms_envs.sokoban.turns import Terms, move, propose

MAX_CALLS = 8
"""Calls that are answered in one turn; further ones are not."""

CALL_CHARS = 200
"""Maximum characters of one call that the planner reads."""

MOVES_CHARS = 500
"""Maximum characters of the moves of one call that the planner reads."""

DESCRIPTION = """\
walk(row, col): the player walks to that cell on a shortest way without pushing
push(row, col, direction, count): the player walks behind the box on that cell and pushes it count \
cells; direction is U, D, L or R
move(moves): the player makes these moves, for example move(["U","R"])
Each call begins where the one before ended. All their moves together are {use}."""

_WHOLE = re.compile(r"[0-9]{1,3}")


class CallResults(NamedTuple):
    """What the planner reads."""

    calls: str
    results: str
    moves: str
    """All moves, as letters."""
    num_cut: int
    """How many moves of too long lists were left out."""


class _World(NamedTuple):
    """Where the calls so far lead."""

    level: Level
    player: int
    boxes: int


def use_tool(state: SokobanState, action: Any, tool: str, terms: Terms) -> Transition:
    """Run what the tool agent asks for and show it to the planner.

    Args:
        state: The state at the start of the turn.
        action: A program, calls, or a `ParseError`.
        tool: `"python"` or `"call"`.
        terms: The conditions.

    Raises:
        SandboxError: If the sandbox failed, so that nothing is known about the program.
    """
    found = _find(state, action, tool, terms)
    return _reported(propose(state, found.moves, terms, found.call, found.result), found)


def execute(state: SokobanState, action: Any, tool: str, terms: Terms) -> Transition:
    """Play the action of a tool agent that works alone: the moves that it finds are executed.

    What they pay is what the planner's list of the same moves would. Arguments and errors are those
    of `use_tool`.
    """
    found = _find(state, action, tool, terms)
    done = _reported(move(state, found.moves, terms), found)
    return with_reason(done, found.lack) if found.lack else done


class _Found(NamedTuple):
    """What a tool agent found."""

    moves: str | ParseError
    call: str
    """What it asked for or wrote, bounded."""
    result: str
    """What came back, bounded."""
    num_cut: int = 0
    """How many moves of too long lists were left out."""
    lack: str = ""
    """Why there are no moves, for the next prompt of a tool agent that works alone."""


def _find(state: SokobanState, action: Any, tool: str, terms: Terms) -> _Found:
    if isinstance(action, ParseError):
        return _Found(action, "", f"none: {action.reason}")
    if tool == "call":
        done = run_calls(state.level, state.player, state.boxes, action, terms.moves_per_turn)
        lack = "" if done.moves else f"no call gave moves: {one_line(done.results, MOVES_CHARS)}"
        return _Found(done.moves, done.calls, done.results, done.num_cut, lack)
    ran = run_program(action, shown_text(state.level, state.player, state.boxes) + "\n")
    moves = ran.answer(read_printed_moves)
    lack = moves.reason if isinstance(moves, ParseError) else ""
    return _Found(moves, show_program(action), ran.report, lack=lack)


def _reported(done: Transition, found: _Found) -> Transition:
    """Return a transition whose info has the tool agent's work too."""
    num_cut = done.info["cut_moves"] + found.num_cut
    facts = {"cut_moves": num_cut, "call": found.call, "result": found.result}
    return done._replace(info={**done.info, **facts})


def read_calls(text: str) -> tuple[tuple[str, ...], ...] | ParseError:
    """Read the calls of an answer; of more than `MAX_CALLS`, the first.

    Returns:
        ("walk", row, col), ("push", row, col, direction, count) or ("move", moves) per call, with
        moves as letters; the answer is unreadable if one of the calls is.
    """
    part = answer_part(text)
    found = part if isinstance(part, ParseError) else grammar_calls(part, ("walk", "push", "move"))
    if isinstance(found, ParseError):
        return found
    calls: list[tuple[str, ...]] = []
    for name, arguments in found[:MAX_CALLS]:
        call = _call_of(name, arguments)
        if call is None:
            return ParseError(f"a call of {name} with other arguments than it has")
        calls.append(call)
    return tuple(calls)


def _call_of(name: str, arguments: list[Item]) -> tuple[str, ...] | None:
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


def run_calls(
    level: Level, player: int, boxes: int, calls: tuple[tuple[str, ...], ...], max_moves: int
) -> CallResults:
    """Answer calls, one bounded line each; each begins where the one before ended.

    Args:
        level: Floor and goals.
        player: Number of the player's cell.
        boxes: The cells with boxes.
        calls: What `read_calls` returned.
        max_moves: The maximum number of moves of a list that are made; further ones are not.
    """
    world, moves, num_cut = _World(level, player, boxes), "", 0
    lines: list[str] = []
    asked: list[str] = []
    for name, *arguments in calls:
        words = [moves_json(arguments[0])] if name == "move" else arguments
        shown = _cut(f"{name}({', '.join(words)})", CALL_CHARS)
        answer = {"walk": _walk, "push": _push, "move": _move}[name](world, arguments)
        asked.append(shown)
        if answer.startswith("none"):
            lines.append(f"{shown} = {answer}")
            continue
        if name == "move":
            num_cut += max(0, len(answer) - max_moves)
            answer = answer[:max_moves]
        player, boxes, _, num_illegal, _ = play(level, world.player, world.boxes, answer)
        world, moves = _World(level, player, boxes), moves + answer
        end = _end(world, num_illegal)
        lines.append(f"{shown} = {_cut(moves_json(answer), MOVES_CHARS)}, {end}")
    return CallResults("; ".join(asked), "\n".join(lines), moves, num_cut)


def _cut(text: str, num_chars: int) -> str:
    rest = len(text) - num_chars
    return text if rest <= 0 else f"{text[:num_chars]}... {rest} characters left out"


def _end(world: _World, num_illegal: int) -> str:
    level, stride = world.level, world.level.stride
    row, col = divmod(world.player, stride)
    text = f"then the player is at ({row}, {col})"
    if num_illegal:
        text += f" ({num_illegal} of the moves illegal)"
    if world.boxes == level.goals:
        return text + " and the level is solved"
    if guide_of(level).pushes_left(world.boxes) < 0:
        return text + " and a box is stuck for good"
    home = (world.boxes & level.goals).bit_count()
    return f"{text} and {home} of {level.goals.bit_count()} boxes are on goals"


def _cell(level: Level, row: int, col: int) -> int | None:
    inside = 0 <= row < level.rows and 0 <= col < level.cols
    return row * level.stride + col if inside else None


def _walk(world: _World, arguments: list[str]) -> str:
    level, cell = world.level, _cell(world.level, int(arguments[0]), int(arguments[1]))
    if cell is None or not level.floor & ~world.boxes & 1 << cell:
        return "none: that cell is not free"
    moves = shortest_walk(level.floor & ~world.boxes, world.player, cell, level.stride)
    if moves is None:
        return "none: that cell cannot be reached without pushing"
    return moves or "none: the player stands there"


def _push(world: _World, arguments: list[str]) -> str:
    level, cell = world.level, _cell(world.level, int(arguments[0]), int(arguments[1]))
    if cell is None or not world.boxes >> cell & 1:
        return "none: there is no box on that cell"
    move, count = arguments[2], int(arguments[3])
    delta, free = deltas_of(level.stride)[move], level.floor & ~world.boxes
    if not free >> cell - delta & 1:
        return "none: the cell behind the box is not free"
    way = shortest_walk(free, world.player, cell - delta, level.stride)
    if way is None:
        return "none: the player cannot get behind the box"
    room = 0
    while room < count and free >> cell + (room + 1) * delta & 1:
        room += 1
    if room < count or count == 0:
        return f"none: the box can be pushed {room} cells {move}"
    return way + move * count


def _move(world: _World, arguments: list[str]) -> str:
    return arguments[0] or "none: no moves"
