"""What a tool agent can do: call a function, or write a program for the sandbox."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from pettingllms.parsing import answer_part, bare_answer, read_calls
from pettingllms.transition import ParseError
from pettingllms_envs.grid import moves_json, read_printed_moves
from pettingllms_envs.plan_path.rules import Maze, legal_moves, shortest_path
from pettingllms_envs.plan_path.text import level_text
from pettingllms_envs.python_tool import read_program, run_program, show_program

_NUMBER = re.compile(r"-?[0-9]{1,4}")
_BARE = re.compile(rf"({_NUMBER.pattern})(?:\s*+,\s*+|\s++)({_NUMBER.pattern})")


class Call(NamedTuple):
    """A call of a helper function for one cell."""

    name: str
    row: int
    col: int

    def __str__(self) -> str:
        return f"{self.name}({self.row}, {self.col})"


class Fault(Enum):
    """What may be wrong with the tool agent's work; each has its cost."""

    NONE = 0
    EMPTY = 1
    """Nothing useful came back: the call was refused, or the program printed an empty list."""
    MALFORMED = 2
    """There is no answer: the text or the output is unreadable, or the program failed."""


class ToolResult(NamedTuple):
    """What the planner reads about the tool's work."""

    call: str
    """What the tool agent asked for or wrote."""
    text: str
    """What came back."""
    moves: str = ""
    """The moves that the result proposes, as letters; empty if it proposes none."""
    fault: Fault = Fault.NONE
    """What is wrong with it."""
    lack: str = ""
    """Why there are no moves, for the next prompt of a tool agent that works alone."""
    num_cut: int = 0
    """How many moves were left out, since there were more than `max_moves`."""


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
            max_moves: The maximum number of moves to propose.
        """
        ...


class CallTool:
    """`tool="call"`: one call of `path`, `distance` or `neighbours`, parsed, never executed."""

    def read(self, text: str) -> Call | ParseError:
        """Read the call of an answer; two bare numbers alone mean `path` of that cell."""
        part = answer_part(text)
        if isinstance(part, ParseError):
            return part
        bare = _BARE.fullmatch(bare_answer(part))
        if bare is not None:
            return Call("path", int(bare[1]), int(bare[2]))
        calls = read_calls(part, tuple(_FUNCTIONS))
        if isinstance(calls, ParseError):
            return calls
        if len(calls) > 1:
            return ParseError("more than one call")
        name, arguments = calls[0]
        cell = [one for one in arguments if isinstance(one, str) and _NUMBER.fullmatch(one)]
        if len(cell) != 2 or len(arguments) != 2:
            return ParseError(f"a call of {name} without a row and a column")
        return Call(name, int(cell[0]), int(cell[1]))

    def run(self, maze: Maze, position: int, action: Call, max_moves: int) -> ToolResult:
        """Return the answer of the helper function; a cell that is no free cell is refused."""
        result = self._answer(maze, position, action, max_moves)
        return result if result.moves else result._replace(lack=f"{action} gave {result.text}")

    def _answer(self, maze: Maze, position: int, action: Call, max_moves: int) -> ToolResult:
        level = maze.level
        name, row, col = action
        if not (0 <= row < level.rows and 0 <= col < level.cols):
            return ToolResult(str(action), "none: that cell is not on the board", "", Fault.EMPTY)
        if not level.is_free(row, col):
            return ToolResult(str(action), "none: that cell is a wall", "", Fault.EMPTY)
        return _FUNCTIONS[name](maze, position, action, max_moves)


def _path(maze: Maze, position: int, call: Call, max_moves: int) -> ToolResult:
    moves = shortest_path(maze, position, maze.level.cell(call.row, call.col))
    if moves is None:
        return ToolResult(str(call), "none: that cell cannot be reached", "", Fault.EMPTY)
    if not moves:
        return ToolResult(str(call), "none: the player stands on that cell", "", Fault.EMPTY)
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


class PythonTool:
    """`tool="python"`: a program that reads the board on stdin and prints a list of moves.

    It runs in the sandbox. Printed moves are a proposal, like those of a proposer.
    """

    def read(self, text: str) -> str | ParseError:
        """Return the last Python code block."""
        return read_program(text)

    def run(self, maze: Maze, position: int, action: str, max_moves: int) -> ToolResult:
        """Run a program on the present board."""
        run = run_program(action, level_text(maze.level, position) + "\n")
        moves, shown = run.answer(read_printed_moves), show_program(action)
        if isinstance(moves, ParseError):
            return ToolResult(shown, run.report, "", Fault.MALFORMED, moves.reason)
        fault, kept = Fault.NONE if moves else Fault.EMPTY, moves[:max_moves]
        return ToolResult(shown, run.report, kept, fault, num_cut=len(moves) - len(kept))


TOOLS: Mapping[str, Callable[[], Tool]] = {"python": PythonTool, "call": CallTool}
"""Value of the argument `tool` -> what it means."""
