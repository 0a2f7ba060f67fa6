"""What the agents read: the words of the prompts, and placeholders for the board."""

from __future__ import annotations

from functools import cache

from pettingllms.prompts import PromptField
from pettingllms_envs.plan_path.text import (
    centred_rows,
    compact_board,
    labelled_board,
    places_text,
    scene_text,
)
from pettingllms_envs.planning.game import PlanningState
from pettingllms_envs.planning.prompts import CallWords, Words
from pettingllms_envs.terrain import rules_text

VIEWS = ("board", "centred")

_BOARD = """\
Rows and columns are numbered from 0; row 0 is at the top, column 0 at the left. \
P is the player, G the goal, # a wall, . a free cell."""

_CENTRED = """\
The board has {rows} rows and {cols} columns, both numbered from 0; row 0 is at the top, column 0 \
at the left. P is the player, G the goal, # a wall, . a free cell.
The map shows the whole board, moved so that P is in the middle: what leaves the map on one side \
comes back on the other. One extra row and one extra column of # mark the edge of the board."""

_MOVES = """\
Moves: U is row - 1, D is row + 1, L is column - 1, R is column + 1. They are executed in order \
until the player stands on the goal. A move into a wall or off the board is illegal and does not \
move the player.
There are {max_turns} turns, with at most {moves_per_turn} moves each. {costs}"""

_FUNCTIONS = """\
path(row, col): the first {moves_per_turn} moves of a shortest path from the player to that cell
distance(row, col): the length of that path
neighbours(row, col): the moves that are legal on that cell"""

_TURN = "Turn {turn} of {max_turns}.{history}"

CALL_WORDS = CallWords(
    duty="call one function",
    mate="tool agent calls a function",
    outcome="the result",
    alone="The moves of a path are executed; what another function returns you read in the next "
    "turn.",
    answer=f"""\
Your functions:
{_FUNCTIONS}
You may think first. The last line of your answer is #### and one call, for example:
#### path(1, 2)""",
    reads="The tool agent called: {tool_call}\nThe result: {tool_result}",
    planner_functions=f"The tool agent's functions:\n{_FUNCTIONS}",
)


@cache
def words(view: str) -> Words:
    """Return the words of prompts in a view, one of `VIEWS`."""
    return Words(
        goal="Lead the player to the goal",
        rules=f"{_BOARD if view == 'board' else _CENTRED}\n{_MOVES}",
        user=f"{_TURN}\n{{scene}}",
        update=f"{_TURN}\n{{{'places' if view == 'board' else 'scene'}}}",
        example='["U","R","R"]',
        program="""\
The program reads the board from stdin, one line per row, without spaces and without numbers. It \
prints a JSON list of moves, such as ["U","R","R"]; its answer is the last such list that it \
prints.""",
        calls=CALL_WORDS,
    )


def _board(state: PlanningState, view: str) -> str:
    if view == "centred":
        return "\n".join(map(" ".join, centred_rows(state.level, state.position)))
    return labelled_board(state.level, state.position)


def _scene(state: PlanningState, view: str) -> str:
    if view == "centred":
        places = places_text(state.level, state.position)
        return f"{_board(state, view)}\n{places}{rules_text(state.level.rules)}"
    return scene_text(state.level, state.position)


def _board_compact(state: PlanningState, view: str) -> str:
    if view == "centred":
        return "\n".join(centred_rows(state.level, state.position))
    return compact_board(state.level, state.position)


@cache
def fields(view: str) -> dict[str, PromptField[PlanningState]]:
    """Return the placeholders of the game in a view."""
    return {
        "scene": PromptField(
            "`board` and, on the line below it, `places`; then `rules`",
            lambda state, agent, turn: _scene(state, view),
        ),
        "board": PromptField(
            "the map, symbols divided by spaces, as the argument view says",
            lambda state, agent, turn: _board(state, view),
        ),
        "board_compact": PromptField(
            "the map, one line per row, nothing between the symbols",
            lambda state, agent, turn: _board_compact(state, view),
        ),
        "board_flat": PromptField(
            "the map without line breaks",
            lambda state, agent, turn: _board_compact(state, view).replace("\n", ""),
        ),
        "places": PromptField(
            "sentences with the cells of player and goal, open doors, a letter under the player",
            lambda state, agent, turn: places_text(state.level, state.position),
        ),
        "rules": PromptField(
            "what holds in this level alone; begins with a line break unless it is empty",
            lambda state, agent, turn: rules_text(state.level.rules),
        ),
        "rows": PromptField("number of rows", lambda state, agent, turn: state.level.rows),
        "cols": PromptField("number of columns", lambda state, agent, turn: state.level.cols),
        "row": PromptField(
            "the player's row",
            lambda state, agent, turn: state.position % state.level.area // state.level.stride,
        ),
        "col": PromptField(
            "the player's column", lambda state, agent, turn: state.position % state.level.stride
        ),
        "goal_row": PromptField(
            "the goal's row", lambda state, agent, turn: state.level.goal // state.level.stride
        ),
        "goal_col": PromptField(
            "the goal's column", lambda state, agent, turn: state.level.goal % state.level.stride
        ),
    }
