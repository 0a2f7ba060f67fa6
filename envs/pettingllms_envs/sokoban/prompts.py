"""What the agents read: templates per team and tool, and the values of their placeholders."""

from __future__ import annotations

from functools import lru_cache

from pettingllms.prompts import PromptField, PromptTemplate
from pettingllms_envs.grid import cells_of, moves_json
from pettingllms_envs.python_tool import INSTRUCTIONS
from pettingllms_envs.reward import HISTORY, costs, costs_text, history_text
from pettingllms_envs.sokoban.rules import SokobanState
from pettingllms_envs.sokoban.text import (
    cell_list,
    labelled_text,
    places_text,
    scene_text,
    shown_text,
)
from pettingllms_envs.sokoban.tools import DESCRIPTION, MAX_CALLS

_RULES = """\
# is a wall, $ a box, . a goal, * a box on a goal, @ the player, + the player on a goal, _ \
free floor. Rows and columns are numbered from 0; row 0 is at the top, column 0 at the left.
Moves: U is row - 1, D is row + 1, L is column - 1, R is column + 1. A move into a box pushes it \
one cell, if the cell beyond it holds no wall and no other box; boxes cannot be pulled. Moves are \
executed in order; an illegal move changes nothing. {lost}
There are {max_turns} turns, with at most {moves_per_turn} moves each. {costs}"""

_LOST = "A box stuck where it can reach no goal loses the level"

_GOAL = "Push all boxes onto goals"
_TASKS = {
    "single": f"{_GOAL}.",
    "planner": f"{_GOAL}, in a team of two: each turn the {{mate}}, then you, the planner, decide "
    "which moves are executed.",
    "proposer": f"{_GOAL}, in a team of two: each turn you, the proposer, propose moves. The "
    "planner reads them and decides which moves are executed.",
    "call": f"{_GOAL}, in a team of two: each turn you, the tool agent, call functions. The "
    "planner reads the results and decides which moves are executed.",
    "python": f"{_GOAL}, in a team of two: each turn you, the tool agent, write a program. The "
    "planner reads it and what it prints, and decides which moves are executed.",
    "single-call": f"{_GOAL}: each turn you call functions. The moves that they return are "
    "executed.",
    "single-python": f"{_GOAL}: each turn you write a program. The moves that it prints are "
    "executed.",
}
_MATES = {
    "proposer": "proposer proposes moves",
    "call": "tool agent calls functions",
    "python": "tool agent writes a program, which is run",
}
_HEARD = {
    "proposer": "The proposer proposes: {proposal}",
    "call": "The tool agent's calls and their results:\n{tool_result}",
    "python": "The tool agent's program:\n{tool_call}\nWhat it did:\n{tool_result}",
}
_ANSWER_MOVES = """\
You may think first. The last line of your answer is #### and a JSON list of moves, for example:
#### ["U","R","R"]"""
_ANSWER_CALLS = f"""\
The functions:
{DESCRIPTION}
You may think first. The last line of your answer is #### and up to {MAX_CALLS} calls, for example:
#### walk(2, 1) push(2, 2, R, 1)"""
_ANSWER_PROGRAM = f"""\
The program reads the board from stdin, one line per row, without spaces and without numbers. It \
prints a JSON list of moves, such as ["U","R","R"]; its answer is the last list that it prints.
{INSTRUCTIONS}"""
_USER = "Turn {turn} of {max_turns}.{history}\n{scene}"


def templates(
    team: str,
    tool: str,
    max_turns: int,
    moves_per_turn: int,
    stop_when_lost: bool = True,
    reward: str = "shaped",
) -> dict[str, PromptTemplate]:
    """Return role -> prompt template of a team; the system texts have no placeholders left.

    Args:
        team: One of `TEAMS`.
        tool: `"python"` or `"call"`; only teams with a tool agent use it.
        max_turns: Turns of an episode.
        moves_per_turn: Maximum number of moves executed in a turn.
        stop_when_lost: Whether an episode ends when it is certainly lost.
        reward: What is paid; see `TextEnv`.
    """
    rules = _RULES.format(
        max_turns=max_turns,
        moves_per_turn=moves_per_turn,
        lost=f"{_LOST} and ends the episode." if stop_when_lost else f"{_LOST}.",
        costs=costs_text(costs(max_turns, moves_per_turn), "illegal move", reward),
    )

    def template(task: str, answer: str, heard: str = "") -> PromptTemplate:
        user = _USER.replace("{max_turns}", str(max_turns)) + (f"\n{heard}" if heard else "")
        return PromptTemplate(f"{task}\n{rules}\n{answer}", user)

    if team == "single":
        return {"planner": template(_TASKS["single"], _ANSWER_MOVES)}
    is_alone = team == "single-tool"
    answer = _ANSWER_CALLS if tool == "call" else _ANSWER_PROGRAM
    answer = answer.replace("{use}", "executed" if is_alone else "your proposal")
    if is_alone:
        return {"tool": template(_TASKS[f"single-{tool}"], answer)}
    mate = tool if team == "tool-planner" else "proposer"
    task = _TASKS["planner"].replace("{mate}", _MATES[mate])
    planner = template(task, _ANSWER_MOVES, _HEARD[mate])
    if mate == "proposer":
        return {"proposer": template(_TASKS["proposer"], _ANSWER_MOVES), "planner": planner}
    return {"tool": template(_TASKS[mate], answer), "planner": planner}


def _player(state: SokobanState) -> str:
    row, col = divmod(state.player, state.level.stride)
    return f"({row}, {col})"


def _board_flat(state: SokobanState) -> str:
    return shown_text(state.level, state.player, state.boxes).replace("\n", "")


def _places_compact(state: SokobanState) -> str:
    level = state.level
    cells = (state.player, *cells_of(state.boxes), *cells_of(level.goals))
    places = (number for cell in cells for number in divmod(cell, level.stride))
    num_digits = len(str(max(level.rows, level.cols) - 1))
    return "".join(f"{number:0{num_digits}}" for number in places)


@lru_cache(maxsize=64)
def fields(max_turns: int = 4, moves_per_turn: int = 20) -> dict[str, PromptField[SokobanState]]:
    """Return the placeholders of an environment with these arguments."""
    return {
        "scene": PromptField(
            "`board` and, on the line below it, `places`",
            lambda state, agent, turn: scene_text(state.level, state.player, state.boxes),
        ),
        "board": PromptField(
            "the board with row and column numbers, symbols divided by spaces",
            lambda state, agent, turn: labelled_text(state.level, state.player, state.boxes),
        ),
        "board_compact": PromptField(
            "the board, one line per row, nothing between the symbols",
            lambda state, agent, turn: shown_text(state.level, state.player, state.boxes),
        ),
        "board_flat": PromptField(
            "the board without line breaks", lambda state, agent, turn: _board_flat(state)
        ),
        "places": PromptField(
            "a sentence with the cells of player, boxes and goals",
            lambda state, agent, turn: places_text(state.level, state.player, state.boxes),
        ),
        "places_compact": PromptField(
            "row and column of the player, of each box and of each goal: 213243; two digits each "
            "where the board has more than ten rows or columns",
            lambda state, agent, turn: _places_compact(state),
        ),
        "history": PromptField(HISTORY, lambda state, agent, turn: history_text(state.unchanged)),
        "player": PromptField(
            "the player's (row, column)", lambda state, agent, turn: _player(state)
        ),
        "boxes": PromptField(
            "the (row, column) of all boxes",
            lambda state, agent, turn: cell_list(state.boxes, state.level.stride),
        ),
        "goals": PromptField(
            "the (row, column) of all goals",
            lambda state, agent, turn: cell_list(state.level.goals, state.level.stride),
        ),
        "proposal": PromptField(
            "the moves proposed this turn, as a JSON list",
            lambda state, agent, turn: moves_json(state.proposal),
        ),
        "proposal_compact": PromptField(
            "the same as letters: UR", lambda state, agent, turn: state.proposal
        ),
        "tool_call": PromptField(
            "the tool agent's calls or program", lambda state, agent, turn: state.call or "none"
        ),
        "tool_result": PromptField(
            "their result", lambda state, agent, turn: state.result or "none"
        ),
        "moves_per_turn": PromptField(
            "maximum number of moves executed in a turn", lambda state, agent, turn: moves_per_turn
        ),
        "moves_used": PromptField(
            "moves executed so far", lambda state, agent, turn: state.moves_used
        ),
        "rows": PromptField("number of rows", lambda state, agent, turn: state.level.rows),
        "cols": PromptField("number of columns", lambda state, agent, turn: state.level.cols),
        "turn": PromptField("the present turn, from 1", lambda state, agent, turn: turn + 1),
        "max_turns": PromptField("turns of the episode", lambda state, agent, turn: max_turns),
    }
