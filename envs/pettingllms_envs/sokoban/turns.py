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
    """How far a placement of boxes and player is from solved."""

    potential: float
    """In [-0.01, 0.1]; see `shaped`."""
    pushes_left: int
    """Lower bound of the pushes left, -1 if the level is certainly lost."""
    boxes_home: int
    """Boxes on goals."""


# What the proposer promises, the planner often does, and agents and branches share what they see.
@lru_cache(maxsize=4096)
def outlook_of(level: Level, player: int, boxes: int) -> Outlook:
    """Return the outlook of a placement."""
    guide = guide_of(level)
    potential = shaped(guide.distance(player, boxes), guide.start)
    return Outlook(potential, guide.pushes_left(boxes), (boxes & level.goals).bit_count())


def move(state: SokobanState, action: str | ParseError, terms: Terms) -> Transition:
    """Play the planner's action: its moves are executed and the turn's proposal is settled."""
    level, player, boxes, moves_used, before, _, _, _, _ = state
    given = "" if isinstance(action, ParseError) else action
    moves = given[: terms.moves_per_turn]
    player_after, boxes_after, executed, num_illegal, num_pushes = play(level, player, boxes, moves)
    outlook = reached, pushes_left, _ = outlook_of(level, player_after, boxes_after)
    local, unchanged = (num_illegal * terms.costs.illegal if num_illegal else 0.0), ""
    if player_after == player and boxes_after == boxes:
        local, unchanged = unchanged_answer(action, executed, terms.costs)
    moves_used += len(executed)
    info = _facts(level, outlook, num_illegal, len(given) - len(moves), moves_used)
    info["executed"] = tuple(executed)
    info["num_pushes"] = num_pushes
    solved = boxes_after == level.goals
    ended = solved or (pushes_left < 0 and terms.stop_when_lost)
    after = SokobanState(
        level, player_after, boxes_after, moves_used, reached, "", "", "", unchanged
    )
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
    given = "" if isinstance(action, ParseError) else action
    moves = given[: terms.moves_per_turn]
    player_there, boxes_there, executed, num_illegal, _ = play(level, player, boxes, moves)
    promised, _, _ = outlook_of(level, player_there, boxes_there)
    local = num_illegal * terms.costs.illegal if num_illegal else 0.0
    if player == player_there and boxes == boxes_there:
        local, _ = unchanged_answer(action, executed, terms.costs)
    outlook = outlook_of(level, player, boxes)
    info = _facts(level, outlook, num_illegal, len(given) - len(moves), moves_used)
    info["proposed"] = tuple(moves)
    after = SokobanState(level, player, boxes, moves_used, promised, call, result, moves, unchanged)
    return Transition(after, promised - before, local, False, False, info)


def _facts(
    level: Level, outlook: Outlook, num_illegal: int, num_cut: int, moves_used: int
) -> dict[str, Any]:
    _, pushes_left, boxes_home = outlook
    return {
        "illegal_moves": num_illegal,
        "cut_moves": num_cut,
        "boxes_home": boxes_home,
        "pushes_left": pushes_left,
        "lost": pushes_left < 0,
        "certificate": level.certificate,
        "level_moves": level.num_moves,
        "moves_used": moves_used,
    }
