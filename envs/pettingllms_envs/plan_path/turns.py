"""What one action of each role does to the state and what it pays: pure functions."""

from __future__ import annotations

from typing import Any, NamedTuple

from pettingllms.transition import ParseError, Transition
from pettingllms_envs.plan_path.rules import (
    Level,
    Maze,
    Outlook,
    PlanPathState,
    maze_of,
    walk,
)
from pettingllms_envs.plan_path.tools import Fault, Tool, ToolResult
from pettingllms_envs.reward import SUCCESS, Costs, unchanged_answer, with_reason


class Terms(NamedTuple):
    """The conditions under which actions are judged."""

    moves_per_turn: int
    """Maximum number of moves that are executed or proposed in a turn."""
    costs: Costs
    """The local costs of one action."""


def potential(maze: Maze, position: int) -> float:
    """Return the potential of a player's cell, in [-0.01, 0.1]; see `shaped`.

    The distance is that of a breadth-first search, which knows the walls.
    """
    return maze.outlook(position).potential


def call(state: PlanPathState, action: Any, tool: Tool, terms: Terms) -> Transition:
    """Play the tool agent's action.

    Args:
        state: The state at the start of the turn.
        action: What `tool.read` returned.
        tool: What answers the action.
        terms: The conditions.
    """
    maze, costs = maze_of(state.level), terms.costs
    outcome = _outcome(state, action, tool, terms)
    position, _, illegal = walk(maze, state.position, outcome.moves)
    local = illegal * costs.illegal if illegal else 0.0
    if outcome.fault is Fault.MALFORMED:
        local = costs.malformed
    elif outcome.fault is Fault.EMPTY or (outcome.moves and position == state.position):
        local = costs.empty
    info = {"call": outcome.call, "result": outcome.text}
    return _promise(maze, state, position, outcome[:3], local, info)


def execute(state: PlanPathState, action: Any, tool: Tool, terms: Terms) -> Transition:
    """Play the action of a tool agent that works alone: the moves that it finds are executed.

    What they pay is what the planner's list of the same moves would.

    Args:
        state: The state at the start of the turn.
        action: What `tool.read` returned.
        tool: What answers the action.
        terms: The conditions.
    """
    found = _outcome(state, action, tool, terms)
    is_readable = found.fault is not Fault.MALFORMED
    done = move(state, found.moves if is_readable else ParseError(found.text), terms)
    num_cut = done.info["cut_moves"] + found.num_cut
    facts = {"cut_moves": num_cut, "call": found.call, "result": found.text}
    done = done._replace(info={**done.info, **facts})
    return with_reason(done, found.lack) if found.lack else done


def _outcome(state: PlanPathState, action: Any, tool: Tool, terms: Terms) -> ToolResult:
    if isinstance(action, ParseError):
        return ToolResult("", f"none: {action.reason}", "", Fault.MALFORMED)
    return tool.run(maze_of(state.level), state.position, action, terms.moves_per_turn)


def propose(state: PlanPathState, action: str | ParseError, terms: Terms) -> Transition:
    """Play the proposer's action: its moves are tried and shown to the planner, not executed."""
    maze, position = maze_of(state.level), state.position
    given = "" if isinstance(action, ParseError) else action
    moves = given[: terms.moves_per_turn]
    promised, executed, illegal = walk(maze, position, moves)
    local = illegal * terms.costs.illegal if illegal else 0.0
    if promised == position:
        local, _ = unchanged_answer(action, executed, terms.costs)
    info = _counts(given, moves, executed, illegal)
    return _promise(maze, state, promised, ("", "", moves), local, info)


def move(state: PlanPathState, action: str | ParseError, terms: Terms) -> Transition:
    """Play the planner's action: its moves are executed and the turn's proposal is settled."""
    level, before, moves_used, promised, _, _, _, _ = state
    maze, given = maze_of(level), "" if isinstance(action, ParseError) else action
    moves = given[: terms.moves_per_turn]
    position, executed, illegal = walk(maze, before, moves)
    local, unchanged = (illegal * terms.costs.illegal if illegal else 0.0), ""
    if position == before:
        local, unchanged = unchanged_answer(action, executed, terms.costs)
    moves_used += len(executed)
    solved = position == level.goal
    outlook, expected = maze.outlook(position), maze.outlook(promised if promised >= 0 else before)
    team = outlook.potential - expected.potential + SUCCESS * solved
    info = _counts(given, moves, executed, illegal)
    info["executed"] = tuple(executed)
    _add_facts(info, level, outlook, moves_used)
    after = PlanPathState(level, position, moves_used, -1, "", "", "", unchanged)
    return Transition(after, team, local, solved, solved, info)


def _promise(
    maze: Maze,
    state: PlanPathState,
    promised: int,
    shown: tuple[str, str, str],
    local: float,
    info: dict[str, Any],
) -> Transition:
    """Return the transition to a state in which the planner reads what the team-mate proposes.

    Args:
        maze: The level's tables.
        state: The state at the start of the turn.
        promised: Where the proposed moves lead.
        shown: The tool agent's call, its result, and the proposed moves.
        local: The local reward.
        info: What infos hold of the action alone; the rest is added.
    """
    level, position, moves_used, _, _, _, _, unchanged = state
    outlook, expected = maze.outlook(position), maze.outlook(promised)
    _add_facts(info, level, outlook, moves_used)
    info["proposed"] = tuple(shown[2])
    info["promised_distance"] = expected.distance
    after = PlanPathState(level, position, moves_used, promised, *shown, unchanged)
    return Transition(after, expected.potential - outlook.potential, local, False, False, info)


def _counts(given: str, moves: str, executed: str, illegal: int) -> dict[str, Any]:
    return {
        "illegal_moves": illegal,
        "cut_moves": len(given) - len(moves),
        "unused_moves": len(moves) - len(executed) - illegal,
    }


def _add_facts(info: dict[str, Any], level: Level, outlook: Outlook, moves_used: int) -> None:
    _, distance, place = outlook
    info["position"] = place
    info["distance"] = distance
    info["shortest"] = level.shortest
    info["moves_used"] = moves_used
    info["optimality"] = 0.0 if distance else level.shortest / moves_used
