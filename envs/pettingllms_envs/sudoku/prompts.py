"""What the agents read: the words of the prompts, and placeholders for the grid."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, lru_cache
from math import isqrt
from operator import getitem, itemgetter

from pettingllms.prompts import PromptField
from pettingllms_envs.planning.calls import MAX_CALLS, bounded
from pettingllms_envs.planning.game import PlanningState
from pettingllms_envs.planning.prompts import CallWords, Words
from pettingllms_envs.reward import history_text
from pettingllms_envs.sudoku.drawn_text import rules_lines
from pettingllms_envs.sudoku.rules import TAKEN, TAKEN_DRAWN, candidates, text_of
from pettingllms_envs.sudoku.solver import BOX_SHAPES
from pettingllms_envs.sudoku.text import (
    MAX_TERSE_SIZE,
    SHOWN_CHARS,
    cells_text,
    fills_json,
    fills_terse,
)

_RULES = """\
Every row, column and box of the {size}x{size} grid must hold each of the values 1 to {size} \
once. Boxes have {box_rows} rows and {box_cols} columns. 0 is an empty cell. Rows and columns are \
numbered from 1; row 1 is at the top, column 1 at the left.
A fill is [row, column, value]; value 0 clears a cell. The given values cannot be changed. A value \
that is already in the {taken} is refused. There are {{max_turns}} turns. {{costs}}"""

_DRAWN = """\
This puzzle has rules of its own, which stand below the grid:
boxes: the boxes instead of those above, as the number of the box of each cell, row by row; \
without this line those above hold.
cages: lists of a sum and of cells [row, column]. The values of a cage differ and add up to its sum.
diagonals: each of the two long diagonals must hold every value once too.
Sums are not checked when a value is written.
"""

CALL_WORDS = CallWords(
    duty="call functions",
    mate="tool agent calls functions",
    outcome="the results",
    alone="The fills of the last check are written into the grid; what other calls return you "
    "read next turn if no check is made.",
    answer=f"""\
The functions:
candidates(row, col): the values that are not yet in the row, column or box of that cell
places(unit, number, value): the cells of one unit that could take the value; unit is row, column \
or box, boxes are numbered from 1, left to right and top to bottom
check(fills): which of these fills would be refused, and which empty cells would be left without \
any candidate; its fills are also {{use}}
You may think first. The last line of your answer is #### and up to {MAX_CALLS} calls, for example:
#### candidates(1, 2) places(box, 1, 3) check([[1,2,3],[4,1,2]])""",
    reads="The tool agent's calls and their results:\n{tool_result}",
)


@cache
def words(size: int, is_drawn: bool = False) -> Words:
    """Return the words of prompts about grids of a size, with or without drawn rules."""
    box_rows, box_cols = BOX_SHAPES[size]
    taken = TAKEN_DRAWN if is_drawn else TAKEN
    rules = _RULES.format(size=size, box_rows=box_rows, box_cols=box_cols, taken=taken)
    lines = ", and below it the lines of boxes, cages and diagonals" if is_drawn else ""
    answer = CALL_WORDS.answer.replace(TAKEN, taken)
    if is_drawn:
        answer = answer.replace("left to right and top to bottom", "or as the line boxes says")
    return Words(
        goal="Solve the Sudoku",
        rules=rules.replace("A fill is", _DRAWN + "A fill is") if is_drawn else rules,
        user="Turn {turn} of {max_turns}.\n{scene}" + "\n{rules}" * is_drawn,
        update="Turn {turn} of {max_turns}.\n{scene}" * is_drawn,
        example="[[1,2,3],[4,1,2]]",
        program=f"""\
The program reads the grid from stdin, as {size} lines of {size} numbers{lines}, and prints a JSON \
list of fills, or a whole grid as a JSON list of rows; its answer is the last such list it \
prints.""",
        calls=CALL_WORDS._replace(answer=answer),
        moves="fills",
        done="written into the grid",
        illegal="refused fill",
        answer_note="Instead of fills, a whole grid as a JSON list of rows is read too; it "
        "replaces all earlier fills.",
        counts_moves=False,
    )


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


def _scene(state: PlanningState, turn: int) -> str:
    """Return the grid, and below it the lines on what the team did before this turn."""
    puzzle, grid, _, _, _, _, _, refused, unchanged = state
    cells, _, _, num_right, num_wrong = grid
    has_fills = turn and (num_right or num_wrong)
    text = _grid_and_fills(puzzle.clues, cells) if has_fills else text_of(cells)
    if refused:
        text += f"\nRefused last turn: {refused}"
    return text + history_text(unchanged) if unchanged else text


def _history(state: PlanningState, turn: int) -> str:
    return _scene(state, turn).removeprefix(state.position.text)


def _proposal_compact(state: PlanningState) -> str:
    return bounded(fills_terse(state.proposal, state.level.size), SHOWN_CHARS)


def _candidates_compact(state: PlanningState) -> str:
    puzzle, size = state.level, state.level.size
    cells = [cell for cell, value in enumerate(state.position.cells) if not value]
    found = [
        [cell // size + 1, cell % size + 1, *candidates(puzzle, state.position, cell)]
        for cell in cells
    ]
    if size > MAX_TERSE_SIZE:
        return json.dumps(found, separators=(",", ":"))
    return ",".join("".join(map(str, numbers)) for numbers in found)


FIELDS: dict[str, PromptField[PlanningState]] = {
    "scene": PromptField(
        "`grid` and, below it, `history`", lambda state, agent, turn: _scene(state, turn)
    ),
    "grid": PromptField(
        "the grid, one row per line, 0 for empty cells",
        lambda state, agent, turn: state.position.text,
    ),
    "grid_flat": PromptField(
        "the grid as one line of symbols, one for each cell: 1-9, then A-G, . for empty cells",
        lambda state, agent, turn: cells_text(state.position.cells),
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
        "the team's fills in the grid",
        lambda state, agent, turn: own_fills(state.level.clues, state.position.cells),
    ),
    "refused": PromptField(
        "the fills refused last turn", lambda state, agent, turn: state.refused or "none"
    ),
    "proposal": PromptField(
        "the fills proposed this turn",
        lambda state, agent, turn: bounded(fills_json(state.proposal), SHOWN_CHARS),
    ),
    "proposal_compact": PromptField(
        "the same as digits, if n has one: 123,412",
        lambda state, agent, turn: _proposal_compact(state),
    ),
    "rules": PromptField(
        "a line for each rule that is drawn with the puzzle; empty without",
        lambda state, agent, turn: "\n".join(rules_lines(state.level.size, state.level.rules)),
    ),
    "size": PromptField("n", lambda state, agent, turn: state.level.size),
}
