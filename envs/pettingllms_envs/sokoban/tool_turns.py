"""The turn of the tool agent, for every `tool`."""

from __future__ import annotations

from typing import Any

from pettingllms.transition import ParseError, Transition
from pettingllms_envs.grid import read_printed_moves
from pettingllms_envs.python_tool import run_program, show_program
from pettingllms_envs.sokoban.scenes import scenes_of
from pettingllms_envs.sokoban.tools import run_calls
from pettingllms_envs.sokoban.turns import SokobanState, Terms, report


def use_tool(state: SokobanState, action: Any, tool: str, terms: Terms) -> Transition:
    """Run what the tool agent asks for and show it to the planner.

    Args:
        state: The state at the start of the turn.
        action: A program, calls, or a `ParseError`.
        tool: `"python"` or `"call"`.
        terms: The conditions.

    Raises:
        SandboxError: If the sandbox failed, so that nothing is known about the program.
    """
    if isinstance(action, ParseError):
        return report(state, action, terms, "", f"none: {action.reason}")
    if tool == "call":
        done = run_calls(state.level, state.player, state.boxes, action, terms.moves_per_turn)
        told = report(state, done.moves, terms, done.calls, done.results)
        return told._replace(info={**told.info, "cut_moves": told.info["cut_moves"] + done.num_cut})
    board = scenes_of(state.level).shown(state.player, state.boxes)
    ran = run_program(action, board + "\n")
    moves = read_printed_moves(ran.stdout) if ran.is_ok else ParseError("the program failed")
    return report(state, moves, terms, show_program(action), ran.report)
