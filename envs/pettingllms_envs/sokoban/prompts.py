"""What the agents read: the words of the prompts, and placeholders for the board."""

from __future__ import annotations

from functools import cache

from pettingllms.prompts import PromptField
from pettingllms_envs.grid import cells_of
from pettingllms_envs.planning.calls import MAX_CALLS
from pettingllms_envs.planning.game import PlanningState
from pettingllms_envs.planning.prompts import CallWords, Words
from pettingllms_envs.sokoban.text import (
    PUSHES,
    cell_list,
    labelled_text,
    places_text,
    scene_text,
    shown_text,
)
from pettingllms_envs.terrain import rules_text

_RULES = """\
# is a wall, $ a box, . a goal, * a box on a goal, @ the player, + the player on a goal, _ \
free floor. Rows and columns are numbered from 0; row 0 is at the top, column 0 at the left.
Moves: U is row - 1, D is row + 1, L is column - 1, R is column + 1. A move into a box pushes it \
one cell, if the cell beyond it holds no wall and no other box; boxes cannot be pulled. Moves are \
executed in order; an illegal move changes nothing. A box stuck where it can reach no goal loses \
the level{end}.
There are {{max_turns}} turns, with at most {{moves_per_turn}} moves each. {{costs}}"""

CALL_WORDS = CallWords(
    duty="call functions",
    mate="tool agent calls functions",
    outcome="the results",
    alone="The moves that they return are executed.",
    answer=f"""\
The functions:
walk(row, col): the player walks to that cell on a shortest way without pushing
push(row, col, direction, count): the player walks behind the box on that cell and pushes it count \
cells; direction is U, D, L or R
move(moves): the player makes these moves, for example move(["U","R"])
Each call begins where the one before ended. All their moves together are {{use}}.
You may think first. The last line of your answer is #### and up to {MAX_CALLS} calls, for example:
#### walk(2, 1) push(2, 2, R, 1)""",
    reads="The tool agent's calls and their results:\n{tool_result}",
)


@cache
def words(stop_when_lost: bool) -> Words:
    """Return the words of prompts; they say whether a lost level ends the episode."""
    return Words(
        goal="Push all boxes onto goals",
        rules=_RULES.format(end=" and ends the episode" if stop_when_lost else ""),
        user="Turn {turn} of {max_turns}.{history}\n{scene}",
        example='["U","R","R"]',
        program="""\
The program reads the board from stdin, one line per row, without spaces and without numbers. It \
prints a JSON list of moves, such as ["U","R","R"]; its answer is the last list that it prints.""",
        calls=CALL_WORDS,
    )


def _places_compact(state: PlanningState) -> str:
    level, (player, boxes, _) = state.level, state.position
    cells = (player, *cells_of(boxes), *cells_of(level.goals))
    places = (number for cell in cells for number in divmod(cell, level.stride))
    num_digits = len(str(max(level.rows, level.cols) - 1))
    return "".join(f"{number:0{num_digits}}" for number in places)


FIELDS: dict[str, PromptField[PlanningState]] = {
    "scene": PromptField(
        "`board` and, on the line below it, `places`; then `rules`",
        lambda state, agent, turn: scene_text(state.level, *state.position),
    ),
    "board": PromptField(
        "the board with row and column numbers, symbols divided by spaces",
        lambda state, agent, turn: labelled_text(state.level, *state.position),
    ),
    "board_compact": PromptField(
        "the board, one line per row, nothing between the symbols",
        lambda state, agent, turn: shown_text(state.level, *state.position),
    ),
    "board_flat": PromptField(
        "the board without line breaks",
        lambda state, agent, turn: shown_text(state.level, *state.position).replace("\n", ""),
    ),
    "rules": PromptField(
        "what holds in this level alone; begins with a line break unless it is empty",
        lambda state, agent, turn: rules_text(state.level.rules, PUSHES),
    ),
    "places": PromptField(
        "sentences with the cells of player, boxes and goals, open doors, letters under things",
        lambda state, agent, turn: places_text(state.level, *state.position),
    ),
    "places_compact": PromptField(
        "row and column of the player, of each box and of each goal: 213243; two digits each "
        "where the board has more than ten rows or columns",
        lambda state, agent, turn: _places_compact(state),
    ),
    "player": PromptField(
        "the player's (row, column)",
        lambda state, agent, turn: cell_list(1 << state.position.player, state.level.stride),
    ),
    "boxes": PromptField(
        "the (row, column) of all boxes",
        lambda state, agent, turn: cell_list(state.position.boxes, state.level.stride),
    ),
    "goals": PromptField(
        "the (row, column) of all goals",
        lambda state, agent, turn: cell_list(state.level.goals, state.level.stride),
    ),
    "rows": PromptField("number of rows", lambda state, agent, turn: state.level.rows),
    "cols": PromptField("number of columns", lambda state, agent, turn: state.level.cols),
}
