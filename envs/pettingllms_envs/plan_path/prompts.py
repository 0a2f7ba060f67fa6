"""What the agents read: templates per team and view, and the values of their placeholders."""

from __future__ import annotations

from functools import lru_cache

from pettingllms.prompts import PromptField, PromptTemplate
from pettingllms_envs.grid import moves_json
from pettingllms_envs.plan_path.rules import PlanPathState
from pettingllms_envs.plan_path.text import (
    centred_rows,
    compact_board,
    labelled_board,
    places_text,
    scene_text,
)
from pettingllms_envs.python_tool import INSTRUCTIONS
from pettingllms_envs.reward import HISTORY, costs, costs_text, history_text

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

_CALLS = """\
path(row, col): the first {moves_per_turn} moves of a shortest path from the player to that cell
distance(row, col): the length of that path
neighbours(row, col): the moves that are legal on that cell"""

_TASKS = {
    "single": "Lead the player to the goal.",
    "planner": "Lead the player to the goal, in a team of two: each turn the {mate}, then you, the "
    "planner, decide which moves are executed.",
    "proposer": "Lead the player to the goal, in a team of two: each turn you, the proposer, "
    "propose moves. The planner reads them and decides which moves are executed.",
    "call": "Lead the player to the goal, in a team of two: each turn you, the tool agent, call "
    "one function. The planner reads the result and decides which moves are executed.",
    "python": "Lead the player to the goal, in a team of two: each turn you, the tool agent, write "
    "a program. The planner reads it and what it prints, and decides which moves are executed.",
    "single-call": "Lead the player to the goal: each turn you call one function. The moves of a "
    "path are executed; what another function returns you read in the next turn.",
    "single-python": "Lead the player to the goal: each turn you write a program. The moves that "
    "it prints are executed.",
}
_MATES = {
    "proposer": "proposer proposes moves",
    "call": "tool agent calls a function",
    "python": "tool agent writes a program, which is run",
}
_HEARD = {
    "proposer": "The proposer proposes: {proposal}",
    "call": "The tool agent called: {tool_call}\nThe result: {tool_result}",
    "python": "The tool agent's program:\n{tool_call}\nWhat it did:\n{tool_result}",
}

_ANSWER_MOVES = """\
You may think first. The last line of your answer is #### and a JSON list of moves, for example:
#### ["U","R","R"]"""
_ANSWER_CALL = """\
You may think first. The last line of your answer is #### and one call, for example:
#### path(1, 2)"""

_ANSWER_PROGRAM = f"""\
The program reads the board from stdin, one line per row, without spaces and without numbers. It \
prints a JSON list of moves, such as ["U","R","R"]; its answer is the last such list that it prints.
{INSTRUCTIONS}"""

_TURN = "Turn {turn} of {max_turns}.{history}"


def _template(
    task: str, answer: str, view: str, heard: str = "", calls: str = ""
) -> PromptTemplate:
    rules = _BOARD if view == "board" else _CENTRED
    system = [task, rules, _MOVES, calls, answer]
    user = [_TURN, "{scene}", heard]
    update = [_TURN, "{places}" if view == "board" else "{scene}", heard]
    return PromptTemplate(*("\n".join(filter(None, part)) for part in (system, user, update)))


def templates(team: str, tool: str, view: str) -> dict[str, PromptTemplate]:
    """Return role -> prompt template of a team.

    Args:
        team: One of `TEAMS`.
        tool: `"python"` or `"call"`; only teams with a tool agent use it.
        view: One of `VIEWS`.
    """
    if team == "single":
        return {"planner": _template(_TASKS["single"], _ANSWER_MOVES, view)}
    if team == "single-tool":
        return {"tool": _tool_template(f"single-{tool}", tool, view)}
    mate = tool if team == "tool-planner" else "proposer"
    task = _TASKS["planner"].replace("{mate}", _MATES[mate])
    calls = f"The tool agent's functions:\n{_CALLS}" if mate == "call" else ""
    planner = _template(task, _ANSWER_MOVES, view, _HEARD[mate], calls)
    if mate == "proposer":
        return {"proposer": _template(_TASKS[mate], _ANSWER_MOVES, view), "planner": planner}
    return {"tool": _tool_template(mate, tool, view), "planner": planner}


def _tool_template(task: str, tool: str, view: str) -> PromptTemplate:
    if tool == "python":
        return _template(_TASKS[task], _ANSWER_PROGRAM, view)
    return _template(_TASKS[task], _ANSWER_CALL, view, calls=f"Your functions:\n{_CALLS}")


def with_limits(
    template: PromptTemplate, max_turns: int, moves_per_turn: int, reward: str
) -> PromptTemplate:
    """Return a template that holds the limits themselves, not their placeholders.

    What is the same in all observations need not be filled in for each.
    """
    limits = {
        "{max_turns}": str(max_turns),
        "{moves_per_turn}": str(moves_per_turn),
        "{costs}": costs_text(costs(max_turns, moves_per_turn), "illegal move", reward),
    }
    texts = list(template)
    for name, value in limits.items():
        texts = [text.replace(name, value) for text in texts]
    return PromptTemplate(*texts)


def _board(state: PlanPathState, view: str) -> str:
    if view == "centred":
        return "\n".join(map(" ".join, centred_rows(state.level, state.position)))
    return labelled_board(state.level, state.position)


def _scene(state: PlanPathState, view: str) -> str:
    if view == "centred":
        return f"{_board(state, view)}\n{places_text(state.level, state.position)}"
    return scene_text(state.level, state.position)


def _board_compact(state: PlanPathState, view: str) -> str:
    if view == "centred":
        return "\n".join(centred_rows(state.level, state.position))
    return compact_board(state.level, state.position)


@lru_cache(maxsize=64)
def fields(
    view: str = "board", max_turns: int = 4, moves_per_turn: int = 10, reward: str = "shaped"
) -> dict[str, PromptField[PlanPathState]]:
    """Return the placeholders of an environment with these arguments."""
    costs_told = costs_text(costs(max_turns, moves_per_turn), "illegal move", reward)
    return {
        "scene": PromptField(
            "`board` and, on the line below it, `places`",
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
            "a sentence with the cells of player and goal",
            lambda state, agent, turn: places_text(state.level, state.position),
        ),
        "rows": PromptField("number of rows", lambda state, agent, turn: state.level.rows),
        "cols": PromptField("number of columns", lambda state, agent, turn: state.level.cols),
        "row": PromptField(
            "the player's row", lambda state, agent, turn: state.position // state.level.stride
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
        "tool_call": PromptField(
            "the tool agent's call or program of this turn",
            lambda state, agent, turn: state.call or "none",
        ),
        "tool_result": PromptField("its result", lambda state, agent, turn: state.result or "none"),
        "proposal": PromptField(
            "the moves proposed this turn by the tool or the proposer, as a JSON list",
            lambda state, agent, turn: moves_json(state.proposal),
        ),
        "proposal_compact": PromptField(
            "the same as letters: UR", lambda state, agent, turn: state.proposal
        ),
        "moves_per_turn": PromptField(
            "maximum number of moves executed in a turn", lambda state, agent, turn: moves_per_turn
        ),
        "turn": PromptField("the present turn, from 1", lambda state, agent, turn: turn + 1),
        "max_turns": PromptField("turns of the episode", lambda state, agent, turn: max_turns),
        "history": PromptField(HISTORY, lambda state, agent, turn: history_text(state.unchanged)),
        "costs": PromptField(
            "a sentence on what bad answers cost", lambda state, agent, turn: costs_told
        ),
        "turns_left": PromptField(
            "turns left, with the present one", lambda state, agent, turn: max_turns - turn
        ),
        "moves_used": PromptField(
            "moves executed so far", lambda state, agent, turn: state.moves_used
        ),
    }
