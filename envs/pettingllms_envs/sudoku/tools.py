"""The turn of the tool agent: a program for the sandbox, or helper calls.

Calls are parsed and answered, never executed.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pettingllms.parsing import Item, answer_part, one_line
from pettingllms.parsing import read_calls as grammar_calls
from pettingllms.transition import ParseError, Transition
from pettingllms_envs.python_tool import run_program, show_program
from pettingllms_envs.reward import Costs, with_reason
from pettingllms_envs.sudoku.generator import Puzzle
from pettingllms_envs.sudoku.rules import Grid, candidates
from pettingllms_envs.sudoku.solver import geometry
from pettingllms_envs.sudoku.text import (
    FillAnswer,
    answer_json,
    answer_of_items,
    cut,
    read_printed_answer,
)
from pettingllms_envs.sudoku.turns import SudokuState, cost, decide, report, try_answer

MAX_CALLS = 8
"""Calls that are answered in one turn; further ones are not."""

CALL_CHARS = 200
"""Maximum characters of one call that the planner reads."""

PROPOSAL_CHARS = 1500
"""The same for the `check` whose fills are the proposal: enough for any missing fills."""

RESULT_CHARS = 500
"""Maximum characters of one result that the planner reads."""

DESCRIPTION = """\
candidates(row, col): the values that are not yet in the row, column or box of that cell
places(unit, number, value): the cells of one unit that could take the value; unit is row, column \
or box, boxes are numbered from 1, left to right and top to bottom
check(fills): which of these fills would be refused, and which empty cells would be left without \
any candidate; its fills are also {use}"""

_WHOLE = re.compile(r"[0-9]{1,3}")
_NAMES = ("candidates", "places", "check")


class Call(NamedTuple):
    """A call of `candidates(row, col)`, `places(unit, number, value)` or `check(fills)`."""

    name: str
    arguments: tuple[str, ...]
    """The arguments of the first two."""
    fills: FillAnswer = FillAnswer(())
    """The argument of `check`."""


class Calls(NamedTuple):
    """What the tool agent asks for."""

    calls: tuple[Call, ...]


class CallResults(NamedTuple):
    """What the planner reads."""

    calls: str
    results: str
    answer: FillAnswer | None
    """The fills of the last `check`."""
    is_useful: bool
    """Whether any call was answered and not refused."""


def use_tool(state: SudokuState, action: Any, tool: str, costs: Costs) -> Transition:
    """Run what the tool agent asks for and show it to the planner.

    Args:
        state: The state at the start of the turn.
        action: A program, calls, or a `ParseError`.
        tool: `"python"` or `"call"`.
        costs: The costs of one answer.

    Raises:
        SandboxError: If the sandbox failed, so that nothing is known about the program.
    """
    found = _find(state, action, tool)
    if isinstance(found.answer, ParseError):
        return report(state, found.call, found.result, None, costs.malformed)
    if tool == "call":
        local = 0.0 if found.is_useful else costs.empty
    else:
        local = cost(try_answer(state.puzzle, state.grid, found.answer), costs)
    return report(state, found.call, found.result, found.answer, local)


def execute(state: SudokuState, action: Any, tool: str, costs: Costs) -> Transition:
    """Play the action of a tool agent that works alone: the fills that it finds are written.

    What they pay is what the planner's list of the same fills would. Arguments and errors are those
    of `use_tool`.
    """
    found = _find(state, action, tool)
    done = decide(state, found.answer, costs)
    done = done._replace(info={**done.info, "call": found.call, "result": found.result})
    return with_reason(done, found.lack) if found.lack else done


class _Found(NamedTuple):
    """What a tool agent found."""

    answer: FillAnswer | ParseError
    call: str
    """What it asked for or wrote, bounded."""
    result: str
    """What came back, bounded."""
    is_useful: bool = True
    """Whether any call was answered and not refused."""
    lack: str = ""
    """Why there are no fills, for the next prompt of a tool agent that works alone."""


def _find(state: SudokuState, action: Any, tool: str) -> _Found:
    puzzle, grid = state.puzzle, state.grid
    if isinstance(action, ParseError):
        return _Found(action, "", f"none: {action.reason}")
    if tool == "call":
        done = run_calls(puzzle, grid, action)
        if done.answer is not None:
            return _Found(done.answer, done.calls, done.results, done.is_useful)
        lack = f"no call of check: {one_line(done.results, PROPOSAL_CHARS)}"
        return _Found(FillAnswer(()), done.calls, done.results, done.is_useful, lack)
    run = run_program(action, grid.text + "\n")
    answer = run.answer(lambda printed: read_printed_answer(printed, puzzle.size))
    lack = answer.reason if isinstance(answer, ParseError) else ""
    return _Found(answer, show_program(action), run.report, lack=lack)


def read_calls(text: str, size: int) -> Calls | ParseError:
    """Read the calls of an answer, of more than `MAX_CALLS` the first; n is `size`.

    The answer is unreadable if one of the calls is.
    """
    part = answer_part(text)
    found = part if isinstance(part, ParseError) else grammar_calls(part, _NAMES)
    if isinstance(found, ParseError):
        return found
    calls: list[Call] = []
    for name, arguments in found[:MAX_CALLS]:
        call = _call_of(name, arguments, size)
        if call is None:
            return ParseError(f"a call of {name} with other arguments than it has")
        calls.append(call)
    return Calls(tuple(calls))


def _call_of(name: str, arguments: list[Item], size: int) -> Call | None:
    if name == "check":
        answer = answer_of_items(arguments, size)
        return None if isinstance(answer, ParseError) else Call(name, (), answer)
    words = tuple(argument for argument in arguments if isinstance(argument, str))
    units = words[:1] if name == "places" else ()
    numbers = words[len(units) :]
    is_readable = len(numbers) == 2 and all(map(_WHOLE.fullmatch, numbers))
    if len(words) != len(arguments) or not is_readable or not {*units} <= {"row", "column", "box"}:
        return None
    return Call(name, words)


def run_calls(puzzle: Puzzle, grid: Grid, calls: Calls) -> CallResults:
    """Answer calls, one bounded line each."""
    asked: list[str] = []
    results: list[str] = []
    answer: FillAnswer | None = None
    proposing = -1
    for number, (name, arguments, fills) in enumerate(calls.calls):
        if name == "check":
            answer, proposing, result = fills, number, _check(puzzle, grid, fills)
            arguments = (answer_json(fills, puzzle.size),)
        elif name == "candidates":
            result = _candidates(puzzle, grid, int(arguments[0]), int(arguments[1]))
        else:
            result = _places(puzzle, grid, arguments[0], int(arguments[1]), int(arguments[2]))
        asked.append(f"{name}({', '.join(arguments)})")
        results.append(cut(result, RESULT_CHARS))
    asked = [
        cut(one, PROPOSAL_CHARS if number == proposing else CALL_CHARS)
        for number, one in enumerate(asked)
    ]
    lines = [f"{one} = {result}" for one, result in zip(asked, results, strict=True)]
    useful = not all(result.startswith("none: ") for result in results)
    return CallResults("; ".join(asked), "\n".join(lines), answer, useful)


def _candidates(puzzle: Puzzle, grid: Grid, row: int, col: int) -> str:
    size = puzzle.size
    if not (0 < row <= size and 0 < col <= size):
        return f"none: rows and columns go from 1 to {size}"
    cell = (row - 1) * size + col - 1
    value = grid.cells[cell]
    return f"none: the cell holds {value}" if value else str(candidates(puzzle, grid, cell))


def _places(puzzle: Puzzle, grid: Grid, unit: str, number: int, value: int) -> str:
    size = puzzle.size
    if not (0 < number <= size and 0 < value <= size):
        return f"none: numbers and values go from 1 to {size}"
    everything = range(size * size)
    unit_of = {
        "row": [cell // size for cell in everything],
        "column": [cell % size for cell in everything],
        "box": geometry(size).boxes,
    }[unit]
    cells = [cell for cell in everything if unit_of[cell] == number - 1]
    if any(grid.cells[cell] == value for cell in cells):
        return f"none: {value} is already in that {unit}"
    open_cells = [cell for cell in cells if value in candidates(puzzle, grid, cell)]
    return str([[cell // size + 1, cell % size + 1] for cell in open_cells])


def _check(puzzle: Puzzle, grid: Grid, answer: FillAnswer) -> str:
    if not answer.fills:
        return "none: no fills"
    size, trial = puzzle.size, try_answer(puzzle, grid, answer)
    refused = [f"{list(one)} ({reason})" for one, reason in trial.refused]
    stuck = [
        [cell // size + 1, cell % size + 1]
        for cell in range(size * size)
        if not trial.grid.cells[cell] and not candidates(puzzle, trial.grid, cell)
    ]
    return f"refused: {', '.join(refused) or 'none'}; without candidates: {stuck or 'none'}"
