"""What one action of each role does to the state and what it pays: pure functions."""

from __future__ import annotations

from typing import Any, NamedTuple

from pettingllms.env import ParseError, Transition
from pettingllms_envs.sokoban.guide import guide_of
from pettingllms_envs.sokoban.reward import SUCCESS, Costs, potential
from pettingllms_envs.sokoban.rules import Level, Run, room_of, run


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
    """What came of it, for the planner."""
    proposal: str = ""
    """The moves proposed this turn, as letters."""


class Terms(NamedTuple):
    """The conditions under which actions are judged."""

    moves_per_turn: int
    """Greatest number of moves that are executed or proposed in a turn."""
    costs: Costs
    """The local costs of one action."""
    stop_when_lost: bool
    """Whether the episode ends when the level can no longer be solved."""


class Trial(NamedTuple):
    """What an action would do."""

    moves: str
    """The moves, at most `moves_per_turn`."""
    done: Run
    local: float
    num_cut: int
    """Moves beyond `moves_per_turn`."""


def initial_state(level: Level) -> SokobanState:
    """Return the state at the start of an episode."""
    return SokobanState(level, level.player, level.boxes)


def try_moves(state: SokobanState, action: str | ParseError, terms: Terms) -> Trial:
    """Return what an action of moves would do, and what it costs the one who gives it."""
    moves, local = "", 0.0
    if isinstance(action, ParseError):
        local, num_cut = terms.costs.malformed, 0
    else:
        moves = action[: terms.moves_per_turn]
        num_cut = len(action) - len(moves)
        if not moves:
            local = terms.costs.empty
    done = run(room_of(state.level), state.player, state.boxes, moves)
    if done.num_illegal:
        local += done.num_illegal * terms.costs.illegal
    return Trial(moves, done, local, num_cut)


def move(state: SokobanState, action: str | ParseError, terms: Terms) -> Transition:
    """Let the planner act: its moves are executed and the turn's proposal is settled."""
    level, trial = state.level, try_moves(state, action, terms)
    player, boxes, executed, _, num_pushes = trial.done
    reached = potential(level, player, boxes)
    after = SokobanState(level, player, boxes, state.moves_used + len(executed), reached)
    solved = boxes == level.goals
    ended = solved or (terms.stop_when_lost and reached == -1.0)
    info = _facts(after, trial)
    info["executed"] = list(executed)
    info["num_pushes"] = num_pushes
    team = reached - state.potential + SUCCESS * solved
    return Transition(after, team, trial.local, ended, solved, info)


def propose(state: SokobanState, action: str | ParseError, terms: Terms) -> Transition:
    """Let the proposer act: its moves are tried out and shown to the planner, not executed."""
    trial = try_moves(state, action, terms)
    return _promise(state, trial, {})


def report(state: SokobanState, call: str, result: str, trial: Trial) -> Transition:
    """Let the tool agent act: the planner will read what it asked for, and the result.

    Args:
        state: The state at the start of the turn.
        call: The calls or the program, bounded.
        result: What came back, bounded.
        trial: What the moves that the result proposes would do, and the local reward.
    """
    after = state._replace(call=call, result=result)
    return _promise(after, trial, {"call": call, "result": result})


def _promise(state: SokobanState, trial: Trial, info: dict[str, Any]) -> Transition:
    promised = potential(state.level, trial.done.player, trial.done.boxes)
    after = state._replace(potential=promised, proposal=trial.moves)
    info = {**_facts(state, trial), "proposed": list(trial.moves), **info}
    return Transition(after, promised - state.potential, trial.local, info=info)


def _facts(state: SokobanState, trial: Trial) -> dict[str, Any]:
    level = state.level
    left = guide_of(level).pushes_left(state.boxes, level.stride)
    return {
        "boxes_home": (state.boxes & level.goals).bit_count(),
        "pushes_left": left,
        "lost": left < 0,
        "moves_used": state.moves_used,
        "illegal_moves": trial.done.num_illegal,
        "cut_moves": trial.num_cut,
        "certificate": level.certificate,
        "level_moves": level.num_moves,
    }
