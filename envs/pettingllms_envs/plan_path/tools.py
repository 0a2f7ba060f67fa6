"""What a tool agent can do: read its text, answer it. Calls are parsed, never executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from pettingllms.env import ParseError
from pettingllms_envs.grid import answer_span, moves_json
from pettingllms_envs.plan_path.rules import Maze
from pettingllms_envs.plan_path.solver import legal_moves, shortest_path

_NUMBER = r"(-?[0-9]{1,4})"
_CALL = re.compile(
    rf"\b(path|distance|neighbours)\s*+\(\s*+(?:row\s*+=\s*+)?{_NUMBER}\s*+,"
    rf"\s*+(?:col\s*+=\s*+)?{_NUMBER}\s*+\)"
)
_BARE = re.compile(rf"\s*+{_NUMBER}(?:\s*+,\s*+|\s++){_NUMBER}\s*+")


class Call(NamedTuple):
    """A call of a helper function for one cell."""

    name: str
    row: int
    col: int

    def __str__(self) -> str:
        return f"{self.name}({self.row}, {self.col})"


class ToolResult(NamedTuple):
    """What the planner is told about the tool's work."""

    call: str
    """What the tool agent asked for."""
    text: str
    """What came back."""
    moves: str = ""
    """The moves that the result proposes, as letters; empty if it proposes none."""
    is_useful: bool = True
    """Whether anything but a refusal came back."""


class Tool(Protocol):
    """A way in which the tool agent's text becomes a result for the planner."""

    def read(self, text: str) -> Any:
        """Return the action that a text asks for, or a `ParseError`. Never raises."""
        ...

    def run(self, maze: Maze, position: int, action: Any, max_moves: int) -> ToolResult:
        """Return the result of an action that `read` returned.

        Args:
            maze: The level's tables.
            position: The player's cell.
            action: What `read` returned; not a `ParseError`.
            max_moves: The greatest number of moves to propose.
        """
        ...


class CallTool:
    """`tool="call"`: one call of `path`, `distance` or `neighbours`."""

    def read(self, text: str) -> Call | ParseError:
        """Read the last well-formed call; two bare numbers alone mean `path` of that cell."""
        last: re.Match[str] | None = None
        for found in _CALL.finditer(text):
            last = found
        if last is not None:
            return Call(last[1], int(last[2]), int(last[3]))
        bare = _BARE.fullmatch(text, *answer_span(text))
        if bare is not None:
            return Call("path", int(bare[1]), int(bare[2]))
        return ParseError("no call of path, distance or neighbours with a row and a column")

    def run(self, maze: Maze, position: int, action: Call, max_moves: int) -> ToolResult:
        """Return the answer of the helper function; a cell that is no free cell is refused."""
        level = maze.level
        name, row, col = action
        if not (0 <= row < level.rows and 0 <= col < level.cols):
            return ToolResult(str(action), "none: that cell is not on the board", "", False)
        if not level.is_free(row, col):
            return ToolResult(str(action), "none: that cell is a wall", "", False)
        return _FUNCTIONS[name](maze, position, action, max_moves)


def _path(maze: Maze, position: int, call: Call, max_moves: int) -> ToolResult:
    moves = shortest_path(maze, position, maze.level.cell(call.row, call.col))
    if moves is None:
        return ToolResult(str(call), "none: that cell cannot be reached", "", False)
    if not moves:
        return ToolResult(str(call), "none: the player stands on that cell", "", False)
    first = moves[:max_moves]
    cut = f" (the first {max_moves} of {len(moves)} moves)" if len(moves) > max_moves else ""
    return ToolResult(str(call), moves_json(first) + cut, first)


def _distance(maze: Maze, position: int, call: Call, max_moves: int) -> ToolResult:
    moves = shortest_path(maze, position, maze.level.cell(call.row, call.col))
    return ToolResult(str(call), "unreachable" if moves is None else str(len(moves)))


def _neighbours(maze: Maze, position: int, call: Call, max_moves: int) -> ToolResult:
    moves = legal_moves(maze, maze.level.cell(call.row, call.col))
    return ToolResult(str(call), moves_json(moves))


_FUNCTIONS: Mapping[str, Callable[[Maze, int, Call, int], ToolResult]] = {
    "path": _path,
    "distance": _distance,
    "neighbours": _neighbours,
}

TOOLS: Mapping[str, Callable[[], Tool]] = {"call": CallTool}
"""The values of the argument `tool` that are available."""
