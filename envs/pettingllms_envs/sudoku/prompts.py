"""What the agents read: templates per team and tool, and the values of their placeholders."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, lru_cache
from math import isqrt
from operator import getitem, itemgetter

from pettingllms.prompts import PromptField, PromptTemplate
from pettingllms_envs.python_tool import INSTRUCTIONS
from pettingllms_envs.reward import costs, costs_text, history_text
from pettingllms_envs.sudoku.rules import candidates, text_of
from pettingllms_envs.sudoku.solver import BOX_SHAPES
from pettingllms_envs.sudoku.text import (
    MAX_TERSE_SIZE,
    SHOWN_CHARS,
    cells_text,
    cut,
    fills_json,
    fills_terse,
)
from pettingllms_envs.sudoku.tools import DESCRIPTION, MAX_CALLS
from pettingllms_envs.sudoku.turns import SudokuState

_RULES = """\
Every row, column and box of the {size}x{size} grid must hold each of the values 1 to {size} \
once. Boxes have {box_rows} rows and {box_cols} columns. 0 is an empty cell. Rows and columns are \
numbered from 1; row 1 is at the top, column 1 at the left.
A fill is [row, column, value]; value 0 clears a cell. The given values cannot be changed. A value \
that is already in the row, column or box is refused. There are {max_turns} turns. {costs}"""

_TASKS = {
    "single": "Solve the Sudoku.",
    "planner": "Solve the Sudoku, in a team of two: each turn the {mate}, then you, the planner, "
    "decide which fills are written into the grid.",
    "proposer": "Solve the Sudoku, in a team of two: each turn you, the proposer, propose fills. "
    "The planner reads them and decides which fills are written into the grid.",
    "call": "Solve the Sudoku, in a team of two: each turn you, the tool agent, call functions. "
    "The planner reads the results and decides which fills are written into the grid.",
    "python": "Solve the Sudoku, in a team of two: each turn you, the tool agent, write a program. "
    "The planner reads it and what it prints, and decides which fills are written into the grid.",
    "single-call": "Solve the Sudoku: each turn you call functions. The fills of the last check "
    "are written into the grid; what other calls return you read next turn if no check is made.",
    "single-python": "Solve the Sudoku: each turn you write a program. The fills that it prints "
    "are written into the grid.",
}
_MATES = {
    "proposer": "proposer proposes fills",
    "call": "tool agent calls functions",
    "python": "tool agent writes a program, which is run",
}
_HEARD = {
    "proposer": "The proposer proposes: {proposal}",
    "call": "The tool agent's calls and their results:\n{tool_result}",
    "python": "The tool agent's program:\n{tool_call}\nWhat it did:\n{tool_result}",
}
_ANSWER_FILLS = """\
You may think first. The last line of your answer is #### and a JSON list of fills, for example:
#### [[1,2,3],[4,1,2]]
Instead of fills, a whole grid as a JSON list of rows is read too; it replaces all earlier fills."""
_ANSWER_CALLS = f"""\
The functions:
{DESCRIPTION}
You may think first. The last line of your answer is #### and up to {MAX_CALLS} calls, for example:
#### candidates(1, 2) places(box, 1, 3) check([[1,2,3],[4,1,2]])"""
_ANSWER_PROGRAM = f"""\
The program reads the grid from stdin, as {{size}} lines of {{size}} numbers, and prints a JSON \
list of fills, or a whole grid as a JSON list of rows; its answer is the last such list it prints.
{INSTRUCTIONS}"""
_USER = "Turn {turn} of {max_turns}.\n{scene}"


def templates(
    team: str, tool: str, size: int, max_turns: int, reward: str = "shaped"
) -> dict[str, PromptTemplate]:
    """Return role -> prompt template of a team; the system texts have no placeholders left.

    Args:
        team: One of `TEAMS`.
        tool: `"python"` or `"call"`; only teams with a tool agent use it.
        size: n.
        max_turns: Turns of an episode.
        reward: What is paid; see `TextEnv`.
    """
    box_rows, box_cols = BOX_SHAPES[size]
    limits = {
        "size": size,
        "box_rows": box_rows,
        "box_cols": box_cols,
        "max_turns": max_turns,
        "costs": costs_text(costs(max_turns, size * size), "refused fill", reward),
    }

    def template(task: str, answer: str, heard: str = "") -> PromptTemplate:
        rules = _RULES.format_map(limits)
        user = _USER.replace("{max_turns}", str(max_turns)) + (f"\n{heard}" if heard else "")
        return PromptTemplate(f"{task}\n{rules}\n{answer}".replace("{size}", str(size)), user)

    if team == "single":
        return {"planner": template(_TASKS["single"], _ANSWER_FILLS)}
    is_alone = team == "single-tool"
    answer = _ANSWER_CALLS if tool == "call" else _ANSWER_PROGRAM
    answer = answer.replace("{use}", "written into the grid" if is_alone else "your proposal")
    if is_alone:
        return {"tool": template(_TASKS[f"single-{tool}"], answer)}
    mate = tool if team == "tool-planner" else "proposer"
    task = _TASKS["planner"].replace("{mate}", _MATES[mate])
    planner = template(task, _ANSWER_FILLS, _HEARD[mate])
    if mate == "proposer":
        return {"proposer": template(_TASKS["proposer"], _ANSWER_FILLS), "planner": planner}
    return {"tool": template(_TASKS[mate], answer), "planner": planner}


def own_fills(clues: bytes, cells: bytes) -> str:
    """Return the fills that a grid holds besides the clues, as a JSON list."""
    values_of, texts = _blanks(clues)
    return "[" + "".join(map(getitem, texts, values_of(cells)))[:-1] + "]"


# Agents of a turn and branches see the same grid.
@lru_cache(maxsize=512)
def _grid_and_fills(clues: bytes, cells: bytes) -> str:
    return f"{text_of(cells)}\nFilled in by your team so far: {own_fills(clues, cells)}"


@lru_cache(maxsize=512)
def _blanks(clues: bytes) -> tuple[Callable[[bytes], tuple[int, ...]], list[list[str]]]:
    """Return what reads the values of all cells that are no clues, and the texts of their fills."""
    texts = _fill_texts(isqrt(len(clues)))
    cells = [cell for cell, clue in enumerate(clues) if not clue]
    # One cell more: for a single cell it would give no tuple.
    return itemgetter(*cells, -1), [texts[cell] for cell in cells]


@cache
def _fill_texts(size: int) -> list[list[str]]:
    """Return every fill of every cell as text that ends with a comma; that of value 0 is empty."""
    numbers = range(1, size + 1)
    return [
        ["", *(f"[{row},{col},{value}]," for value in numbers)]
        for row in numbers
        for col in numbers
    ]


def _own_fills(state: SudokuState) -> str:
    return own_fills(state.puzzle.clues, state.grid.cells)


def _scene(state: SudokuState, turn: int) -> str:
    """Return the grid, and below it the lines on what the team did before this turn."""
    puzzle, grid, _, _, _, _, refused, unchanged = state
    cells, _, _, num_right, num_wrong = grid
    has_fills = turn and (num_right or num_wrong)
    text = _grid_and_fills(puzzle.clues, cells) if has_fills else text_of(cells)
    if refused:
        text += f"\nRefused last turn: {refused}"
    return text + history_text(unchanged) if unchanged else text


def _history(state: SudokuState, turn: int) -> str:
    return _scene(state, turn).removeprefix(state.grid.text)


def _proposal_compact(state: SudokuState) -> str:
    return cut(fills_terse(state.proposal, state.puzzle.size), SHOWN_CHARS)


def _candidates_compact(state: SudokuState) -> str:
    puzzle, size = state.puzzle, state.puzzle.size
    cells = [cell for cell, value in enumerate(state.grid.cells) if not value]
    found = [
        [cell // size + 1, cell % size + 1, *candidates(puzzle, state.grid, cell)] for cell in cells
    ]
    if size > MAX_TERSE_SIZE:
        return json.dumps(found, separators=(",", ":"))
    return ",".join("".join(map(str, numbers)) for numbers in found)


@lru_cache(maxsize=64)
def fields(max_turns: int = 4) -> dict[str, PromptField[SudokuState]]:
    """Return the placeholders of an environment with these arguments."""
    return {
        "scene": PromptField(
            "`grid` and, below it, `history`", lambda state, agent, turn: _scene(state, turn)
        ),
        "grid": PromptField(
            "the grid, one row per line, 0 for empty cells",
            lambda state, agent, turn: state.grid.text,
        ),
        "grid_flat": PromptField(
            "the grid as one line of symbols, one for each cell: 1-9, then A-G, . for empty cells",
            lambda state, agent, turn: cells_text(state.grid.cells),
        ),
        "candidates_compact": PromptField(
            "row, column and the values that the rules allow there, for every empty cell, as "
            "digits, if n has one: 113,1224",
            lambda state, agent, turn: _candidates_compact(state),
        ),
        "history": PromptField(
            "from the second turn on, lines on the team's fills, on refused ones and on a last "
            "turn that changed nothing; begins with a line break unless it is empty",
            lambda state, agent, turn: _history(state, turn),
        ),
        "own_fills": PromptField(
            "the team's fills in the grid", lambda state, agent, turn: _own_fills(state)
        ),
        "refused": PromptField(
            "the fills refused last turn", lambda state, agent, turn: state.refused or "none"
        ),
        "proposal": PromptField(
            "the fills proposed this turn",
            lambda state, agent, turn: cut(fills_json(state.proposal), SHOWN_CHARS),
        ),
        "proposal_compact": PromptField(
            "the same as digits, if n has one: 123,412",
            lambda state, agent, turn: _proposal_compact(state),
        ),
        "tool_call": PromptField(
            "the tool agent's calls or program", lambda state, agent, turn: state.call or "none"
        ),
        "tool_result": PromptField(
            "their result", lambda state, agent, turn: state.result or "none"
        ),
        "size": PromptField("n", lambda state, agent, turn: state.puzzle.size),
        "turn": PromptField("the present turn, from 1", lambda state, agent, turn: turn + 1),
        "max_turns": PromptField("turns of the episode", lambda state, agent, turn: max_turns),
    }
