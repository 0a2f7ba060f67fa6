"""What one action of each role does to the state and what it pays: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pettingllms.transition import ParseError, Transition
from pettingllms_envs.plan_path.reward import potential
from pettingllms_envs.plan_path.rules import Maze, PlanPathState, Walk, maze_of, walk
from pettingllms_envs.plan_path.tools import Fault, Tool, ToolResult
from pettingllms_envs.reward import SUCCESS, Costs, unchanged_answer


class Terms(NamedTuple):
    """The conditions under which actions are judged."""

    moves_per_turn: int
    """Maximum number of moves that are executed or proposed in a turn."""
    costs: Costs
    """The local costs of one action."""


def call(state: PlanPathState, action: Any, tool: Tool, terms: Terms) -> Transition:
    """Play the tool agent's action.

    Args:
        state: The state at the start of the turn.
        action: What `tool.read` returned.
        tool: What answers the action.
        terms: The conditions.
    """
    maze = maze_of(state.level)
    if isinstance(action, ParseError):
        result = ToolResult("", f"none: {action.reason}", "", Fault.MALFORMED)
    else:
        result = tool.run(maze, state.position, action, terms.moves_per_turn)
    done = walk(maze, state.position, result.moves)
    costs = terms.costs
    local = done.illegal * costs.illegal if done.illegal else 0.0
    if result.fault is Fault.MALFORMED:
        local = costs.malformed
    elif result.fault is Fault.EMPTY or (result.moves and done.position == state.position):
        local = costs.empty
    after = PlanPathState(
        state.level,
        state.position,
        state.moves_used,
        done.position,
        result.call,
        result.text,
        result.moves,
        state.unchanged,
    )
    return _promise(maze, after, local, {"call": result.call, "result": result.text})


def propose(state: PlanPathState, action: str | ParseError, terms: Terms) -> Transition:
    """Play the proposer's action: its moves are tried and shown to the planner, not executed."""
    maze = maze_of(state.level)
    moves, done, local, info, _ = _try_moves(maze, state.position, action, terms)
    after = state._replace(promised=done.position, call="", result="", proposal=moves)
    return _promise(maze, after, local, info)


def move(state: PlanPathState, action: str | ParseError, terms: Terms) -> Transition:
    """Play the planner's action: its moves are executed and the turn's proposal is settled."""
    maze, level = maze_of(state.level), state.level
    _, done, local, info, unchanged = _try_moves(maze, state.position, action, terms)
    moves_used = state.moves_used + len(done.executed)
    after = PlanPathState(level, done.position, moves_used, unchanged=unchanged)
    promised = state.promised if state.promised >= 0 else state.position
    solved = done.position == level.goal
    team = potential(maze, done.position) - potential(maze, promised)
    info["executed"] = tuple(done.executed)
    info.update(_facts(maze, after))
    return Transition(after, team + SUCCESS * solved, local, solved, solved, info)


def _try_moves(
    maze: Maze, position: int, action: str | ParseError, terms: Terms
) -> tuple[str, Walk, float, dict[str, Any], str]:
    moves, cut = "", 0
    if not isinstance(action, ParseError):
        moves = action[: terms.moves_per_turn]
        cut = len(action) - len(moves)
    done = walk(maze, position, moves)
    local = done.illegal * terms.costs.illegal if done.illegal else 0.0
    unchanged = ""
    if done.position == position:
        local, unchanged = unchanged_answer(action, done.executed, terms.costs)
    info = {
        "illegal_moves": done.illegal,
        "cut_moves": cut,
        "unused_moves": len(moves) - len(done.executed) - done.illegal,
    }
    return moves, done, local, info, unchanged


def _promise(maze: Maze, after: PlanPathState, local: float, info: dict[str, Any]) -> Transition:
    team = potential(maze, after.promised) - potential(maze, after.position)
    info.update(_facts(maze, after), proposed=tuple(after.proposal))
    info["promised_distance"] = maze.to_goal[after.promised]
    return Transition(after, team, local, info=info)


def _facts(maze: Maze, state: PlanPathState) -> Mapping[str, Any]:
    level, position = state.level, state.position
    solved = position == level.goal
    return {
        "position": divmod(position, level.stride),
        "distance": maze.to_goal[position],
        "shortest": level.shortest,
        "moves_used": state.moves_used,
        "optimality": level.shortest / state.moves_used if solved else 0.0,
    }
