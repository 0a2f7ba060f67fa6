"""What one action of each role does to the state and what it pays: pure functions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from pettingllms.transition import ParseError, Transition
from pettingllms_envs.reward import SUCCESS, Costs, shaped, unchanged_answer
from pettingllms_envs.sokoban.rules import Level, SokobanState, guide_of, play


class Terms(NamedTuple):
    """The conditions under which actions are judged."""

    moves_per_turn: int
    """Maximum number of moves that are executed or proposed in a turn."""
    costs: Costs
    """The local costs of one action."""
    stop_when_lost: bool
    """Whether the episode ends when the level can no longer be solved."""


class Outlook(NamedTuple):
    """How far a state is from solved."""

    distance: float
    """See `Guide.distance`."""
    start: float
    """The distance of the level's first state."""
    pushes_left: int
    """Lower bound of the pushes left, -1 if the level is certainly lost."""

    @property
    def potential(self) -> float:
        """The potential of the state, in [-0.01, 0.1]; see `shaped`."""
        return shaped(self.distance, self.start)


@lru_cache(maxsize=4096)
def outlook_of(level: Level, player: int, boxes: int) -> Outlook:
    """Return the outlook of a state."""
    guide = guide_of(level)
    return Outlook(guide.distance(player, boxes), guide.start, guide.pushes_left(boxes))


def move(state: SokobanState, action: str | ParseError, terms: Terms) -> Transition:
    """Play the planner's action: its moves are executed and the turn's proposal is settled."""
    level, before = state.level, state.potential
    moves, num_cut = _counted(action, terms.moves_per_turn)
    player, boxes, executed, num_illegal, num_pushes = play(level, state.player, state.boxes, moves)
    solved = boxes == level.goals
    distance, start, pushes_left = outlook_of(level, player, boxes)
    reached = shaped(distance, start)
    local, unchanged = (num_illegal * terms.costs.illegal if num_illegal else 0.0), ""
    if player == state.player and boxes == state.boxes:
        local, unchanged = unchanged_answer(action, executed, terms.costs)
    moves_used = state.moves_used + len(executed)
    after = SokobanState(level, player, boxes, moves_used, reached, "", "", "", unchanged)
    info = _facts(after, pushes_left, num_illegal, num_cut)
    info["executed"] = tuple(executed)
    info["num_pushes"] = num_pushes
    ended = solved or (pushes_left < 0 and terms.stop_when_lost)
    return Transition(after, reached - before + SUCCESS * solved, local, ended, solved, info)


def propose(
    state: SokobanState, action: str | ParseError, terms: Terms, call: str = "", result: str = ""
) -> Transition:
    """Play the proposer's or tool agent's action: moves are tried and shown, not executed.

    Args:
        state: The state at the start of the turn.
        action: The moves.
        terms: The conditions.
        call: What a tool agent asked for or wrote, bounded.
        result: Its result, bounded.
    """
    level, player, boxes, moves_used, before, _, _, _, unchanged = state
    moves, num_cut = _counted(action, terms.moves_per_turn)
    player_there, boxes_there, executed, num_illegal, _ = play(level, player, boxes, moves)
    promised = outlook_of(level, player_there, boxes_there).potential
    local = num_illegal * terms.costs.illegal if num_illegal else 0.0
    if player == player_there and boxes == boxes_there:
        local, _ = unchanged_answer(action, executed, terms.costs)
    after = SokobanState(level, player, boxes, moves_used, promised, call, result, moves, unchanged)
    pushes_left = outlook_of(level, player, boxes).pushes_left
    info = _facts(after, pushes_left, num_illegal, num_cut)
    info["proposed"] = tuple(moves)
    return Transition(after, promised - before, local, False, False, info)


def _counted(action: str | ParseError, limit: int) -> tuple[str, int]:
    """Return the moves that count, and how many are left out."""
    if isinstance(action, ParseError):
        return "", 0
    return (action, 0) if len(action) <= limit else (action[:limit], len(action) - limit)


def _facts(state: SokobanState, pushes_left: int, num_illegal: int, num_cut: int) -> dict[str, Any]:
    level = state.level
    return {
        "illegal_moves": num_illegal,
        "cut_moves": num_cut,
        "boxes_home": (state.boxes & level.goals).bit_count(),
        "pushes_left": pushes_left,
        "lost": pushes_left < 0,
        "certificate": level.certificate,
        "level_moves": level.num_moves,
        "moves_used": state.moves_used,
    }
