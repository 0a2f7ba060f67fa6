"""What one action of each role does to the state and what it pays: pure functions."""

from __future__ import annotations

from typing import NamedTuple

from pettingllms.transition import ParseError, Transition
from pettingllms_envs.reward import SUCCESS, Costs, unchanged_answer
from pettingllms_envs.sokoban.rules import Level, play
from pettingllms_envs.sokoban.scenes import scenes_of


class SokobanState(NamedTuple):
    """The state of an episode."""

    level: Level
    player: int
    """Number of the player's cell."""
    boxes: int
    """The cells with boxes."""
    moves_used: int = 0
    """Moves executed so far; illegal moves do not count."""
    potential: float = 0.0
    """The potential of the state; after a proposal, of the state that it promises."""
    call: str = ""
    """What the tool agent asked for or wrote this turn."""
    result: str = ""
    """The result, for the planner."""
    proposal: str = ""
    """The moves proposed this turn, as letters."""
    unchanged: str = ""
    """Why the last turn changed nothing, for the next prompts; empty if it changed something."""


class Terms(NamedTuple):
    """The conditions under which actions are judged."""

    moves_per_turn: int
    """Maximum number of moves that are executed or proposed in a turn."""
    costs: Costs
    """The local costs of one action."""
    stop_when_lost: bool
    """Whether the episode ends when the level can no longer be solved."""


def initial_state(level: Level) -> SokobanState:
    """Return the state at the start of an episode."""
    return SokobanState(level, level.player, level.boxes)


def move(state: SokobanState, action: str | ParseError, terms: Terms) -> Transition:
    """Play the planner's action: its moves are executed and the turn's proposal is settled."""
    level, before = state.level, state.potential
    moves, num_cut = _counted(action, terms.moves_per_turn)
    player, boxes, executed, num_illegal, num_pushes = play(level, state.player, state.boxes, moves)
    layout = scenes_of(level).layouts[boxes]
    reached = layout.potentials[player]
    solved = boxes == level.goals
    ended = solved or (layout.pushes_left < 0 and terms.stop_when_lost)
    moves_used = state.moves_used + len(executed)
    info = layout.decided.copy()
    info["moves_used"] = moves_used
    info["executed"] = tuple(executed)
    info["num_pushes"] = num_pushes
    if num_cut:
        info["cut_moves"] = num_cut
    if num_illegal:
        info["illegal_moves"] = num_illegal
    local = num_illegal * terms.costs.illegal if num_illegal else 0.0
    unchanged = ""
    if player == state.player and boxes == state.boxes:
        local, unchanged = unchanged_answer(action, executed, terms.costs)
    team = reached - before + SUCCESS if solved else reached - before
    after = SokobanState(level, player, boxes, moves_used, reached, unchanged=unchanged)
    return Transition(after, team, local, ended, solved, info)


def propose(
    state: SokobanState,
    action: str | ParseError,
    terms: Terms,
    call: str = "",
    result: str = "",
) -> Transition:
    """Play the proposer's or the tool agent's action: moves are tried out and shown, not executed.

    Args:
        state: The state at the start of the turn.
        action: The moves.
        terms: The conditions.
        call: What a tool agent asked for or wrote, bounded.
        result: The result, bounded.
    """
    level, player, boxes, moves_used, before, _, _, _, unchanged = state
    moves, num_cut = _counted(action, terms.moves_per_turn)
    player_there, boxes_there, executed, num_illegal, _ = play(level, player, boxes, moves)
    layouts = scenes_of(level).layouts
    promised = layouts[boxes_there].potentials[player_there]
    info = layouts[boxes].proposed.copy()
    info["moves_used"] = moves_used
    info["proposed"] = tuple(moves)
    if num_cut:
        info["cut_moves"] = num_cut
    if num_illegal:
        info["illegal_moves"] = num_illegal
    local = num_illegal * terms.costs.illegal if num_illegal else 0.0
    if player == player_there and boxes == boxes_there:
        local, _ = unchanged_answer(action, executed, terms.costs)
    after = SokobanState(level, player, boxes, moves_used, promised, call, result, moves, unchanged)
    return Transition(after, promised - before, local, info=info)


def report(
    state: SokobanState, action: str | ParseError, terms: Terms, call: str, result: str
) -> Transition:
    """Play the tool agent's action: as `propose`, and the planner will read call and result."""
    done = propose(state, action, terms, call, result)
    return done._replace(info={**done.info, "call": call, "result": result})


def _counted(action: str | ParseError, limit: int) -> tuple[str, int]:
    """Return the moves that count, and how many are left out."""
    if isinstance(action, ParseError):
        return "", 0
    return (action, 0) if len(action) <= limit else (action[:limit], len(action) - limit)
