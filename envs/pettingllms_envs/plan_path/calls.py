"""`tool="call"`: the helper functions of a tool agent, parsed and answered, never executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pettingllms.parsing import answer_part, bare_answer, read_calls
from pettingllms.types import ParseError
from pettingllms_envs.grid import moves_json
from pettingllms_envs.plan_path.rules import Level, Maze, legal_moves, maze_of, shortest_path
from pettingllms_envs.planning.env import ToolWork

_NUMBER = re.compile(r"-?[0-9]{1,4}")
_BARE = re.compile(rf"({_NUMBER.pattern})(?:\s*+,\s*+|\s++)({_NUMBER.pattern})")


class HelperCall(NamedTuple):
    """A call of a helper function for one cell."""

    name: str
    row: int
    col: int

    def __str__(self) -> str:
        return f"{self.name}({self.row}, {self.col})"


def read_call(text: str) -> HelperCall | ParseError:
    """Read the call of an answer; two bare numbers alone mean `path` of that cell."""
    part = answer_part(text)
    if isinstance(part, ParseError):
        return part
    bare = _BARE.fullmatch(bare_answer(part))
    if bare is not None:
        return HelperCall("path", int(bare[1]), int(bare[2]))
    calls = read_calls(part, tuple(_FUNCTIONS))
    if isinstance(calls, ParseError):
        return calls
    if len(calls) > 1:
        return ParseError("more than one call")
    name, arguments = calls[0]
    cell = [one for one in arguments if isinstance(one, str) and _NUMBER.fullmatch(one)]
    if len(cell) != 2 or len(arguments) != 2:
        return ParseError(f"a call of {name} without a row and a column")
    return HelperCall(name, int(cell[0]), int(cell[1]))


def answer(level: Level, position: int, call: HelperCall, max_moves: int) -> ToolWork:
    """Return the answer of the helper function; a cell that is no free cell is refused.

    Args:
        level: The level.
        position: The player's cell.
        call: What `read_call` returned.
        max_moves: The maximum number of moves to propose.
    """
    name, row, col = call
    if not (0 <= row < level.rows and 0 <= col < level.cols):
        return _without_moves(call, "none: that cell is not on the board")
    if not level.is_free(row, col):
        return _without_moves(call, "none: that cell is a wall")
    return _FUNCTIONS[name](maze_of(level), position, call, max_moves)


def _without_moves(call: HelperCall, result: str) -> ToolWork:
    is_useful = not result.startswith("none: ")
    return ToolWork("", str(call), result, f"{call} gave {result}", is_useful=is_useful)


def _path(maze: Maze, position: int, call: HelperCall, max_moves: int) -> ToolWork:
    moves = shortest_path(maze, position, maze.level.cell(call.row, call.col))
    if moves is None:
        return _without_moves(call, "none: that cell cannot be reached")
    if not moves:
        return _without_moves(call, "none: the player stands on that cell")
    first = moves[:max_moves]
    cut = f" (the first {max_moves} of {len(moves)} moves)" if len(moves) > max_moves else ""
    return ToolWork(first, str(call), moves_json(first) + cut)


def _distance(maze: Maze, position: int, call: HelperCall, max_moves: int) -> ToolWork:
    moves = shortest_path(maze, position, maze.level.cell(call.row, call.col))
    return _without_moves(call, "unreachable" if moves is None else str(len(moves)))


def _neighbours(maze: Maze, position: int, call: HelperCall, max_moves: int) -> ToolWork:
    moves = legal_moves(maze, maze.level.cell(call.row, call.col))
    return _without_moves(call, moves_json(moves))


_FUNCTIONS: Mapping[str, Callable[[Maze, int, HelperCall, int], ToolWork]] = {
    "path": _path,
    "distance": _distance,
    "neighbours": _neighbours,
}
