"""`tool="call"`: the helper functions of a tool agent, parsed and answered, never executed."""

from __future__ import annotations

import re
from typing import NamedTuple

from pettingllms.parsing import Item, one_line
from pettingllms.types import ParseError
from pettingllms_envs.planning.calls import CALL_CHARS, RESULT_CHARS, bounded, read_several
from pettingllms_envs.planning.game import Calls, ToolWork
from pettingllms_envs.sudoku.generator import Puzzle
from pettingllms_envs.sudoku.rules import FillAnswer, Grid, attempt, candidates
from pettingllms_envs.sudoku.text import answer_json, answer_of_items

PROPOSAL_CHARS = 1500
"""Maximum characters of the `check` whose fills are the proposal: enough for any missing fills."""

_WHOLE = re.compile(r"[0-9]{1,3}")
_NAMES = ("candidates", "places", "check")


class HelperCall(NamedTuple):
    """A call of `candidates(row, col)`, `places(unit, number, value)` or `check(fills)`."""

    name: str
    arguments: tuple[str, ...]
    """The arguments of the first two."""
    fills: FillAnswer = FillAnswer(())
    """The argument of `check`."""


def read_calls(text: str, size: int) -> tuple[HelperCall, ...] | ParseError:
    """Read the calls of an answer, for a grid of n = `size`; see `read_several`."""
    return read_several(text, _NAMES, lambda name, arguments: _call_of(name, arguments, size))


def _call_of(name: str, arguments: list[Item], size: int) -> HelperCall | None:
    if name == "check":
        answer = answer_of_items(arguments, size)
        return None if isinstance(answer, ParseError) else HelperCall(name, (), answer)
    words = tuple(argument for argument in arguments if isinstance(argument, str))
    units = words[:1] if name == "places" else ()
    numbers = words[len(units) :]
    is_readable = len(numbers) == 2 and all(map(_WHOLE.fullmatch, numbers))
    if len(words) != len(arguments) or not is_readable or not {*units} <= {"row", "column", "box"}:
        return None
    return HelperCall(name, words)


def answer(puzzle: Puzzle, grid: Grid, calls: tuple[HelperCall, ...], max_moves: int) -> ToolWork:
    """Answer calls, one bounded line each; the fills of the last `check` are proposed."""
    asked: list[str] = []
    results: list[str] = []
    last = max((at for at, call in enumerate(calls) if call.name == "check"), default=-1)
    for number, (name, arguments, fills) in enumerate(calls):
        if name == "check":
            result = _check(puzzle, grid, fills)
            arguments = (answer_json(fills, puzzle.size),)
        elif name == "candidates":
            result = _candidates(puzzle, grid, int(arguments[0]), int(arguments[1]))
        else:
            result = _places(puzzle, grid, arguments[0], int(arguments[1]), int(arguments[2]))
        shown = PROPOSAL_CHARS if number == last else CALL_CHARS
        asked.append(bounded(f"{name}({', '.join(arguments)})", shown))
        results.append(bounded(result, RESULT_CHARS))
    text = "\n".join(f"{one} = {result}" for one, result in zip(asked, results, strict=True))
    is_useful = not all(result.startswith("none: ") for result in results)
    lack = "" if last >= 0 else f"no call of check: {one_line(text, PROPOSAL_CHARS)}"
    fills = calls[last].fills if last >= 0 else FillAnswer(())
    return ToolWork(fills, "; ".join(asked), text, lack, is_useful=is_useful)


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
        "box": puzzle.boxes,
    }[unit]
    cells = [cell for cell in everything if unit_of[cell] == number - 1]
    if any(grid.cells[cell] == value for cell in cells):
        return f"none: {value} is already in that {unit}"
    open_cells = [cell for cell in cells if value in candidates(puzzle, grid, cell)]
    return str([[cell // size + 1, cell % size + 1] for cell in open_cells])


def _check(puzzle: Puzzle, grid: Grid, answer: FillAnswer) -> str:
    if not answer.fills:
        return "none: no fills"
    size, trial = puzzle.size, attempt(puzzle, grid, answer, 0)
    refused = [f"{list(one)} ({reason})" for one, reason in trial.about[1]]
    stuck = [
        [cell // size + 1, cell % size + 1]
        for cell in range(size * size)
        if not trial.position.cells[cell] and not candidates(puzzle, trial.position, cell)
    ]
    return f"refused: {', '.join(refused) or 'none'}; without candidates: {stuck or 'none'}"


CALLS = Calls[Puzzle, Grid, tuple[HelperCall, ...]](
    read=lambda puzzle, text: read_calls(text, puzzle.size), answer=answer, write="check"
)
