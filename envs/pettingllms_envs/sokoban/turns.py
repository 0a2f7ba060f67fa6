"""What one action of each role does to the state and what it pays: pure functions."""

from __future__ import annotations

from typing import Any, NamedTuple

from pettingllms.env import ParseError, Transition
from pettingllms_envs.sokoban.reward import SUCCESS, Costs
from pettingllms_envs.sokoban.rules import Level, Run
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
    """What it costs the one who gives it."""
    info: dict[str, Any]


def initial_state(level: Level) -> SokobanState:
    """Return the state at the start of an episode.

    It holds a copy of the level, so that what is computed from it does not outlive the episode.
    """
    return SokobanState(Level._make(level), level.player, level.boxes)


def try_moves(state: SokobanState, action: str | ParseError, terms: Terms) -> Trial:
    """Return what an action of moves would do, and what it costs the one who gives it."""
    moves, local, num_cut = "", 0.0, 0
    if isinstance(action, ParseError):
        local = terms.costs.malformed
    else:
        moves = action[: terms.moves_per_turn]
        num_cut = len(action) - len(moves)
        if not moves:
            local = terms.costs.empty
    done = scenes_of(state.level).run(state.player, state.boxes, moves)
    if done.num_illegal:
        local += done.num_illegal * terms.costs.illegal
    return Trial(moves, done, local, {"illegal_moves": done.num_illegal, "cut_moves": num_cut})


def move(state: SokobanState, action: str | ParseError, terms: Terms) -> Transition:
    """Let the planner act: its moves are executed and the turn's proposal is settled."""
    level = state.level
    _, (player, boxes, executed, _, num_pushes), local, info = try_moves(state, action, terms)
    scene = scenes_of(level).scene(player, boxes)
    reached, moves_used = scene.potential, state.moves_used + len(executed)
    solved = boxes == level.goals
    ended = solved or (terms.stop_when_lost and scene.pushes_left < 0)
    info.update(scene.facts)
    info["moves_used"] = moves_used
    info["executed"] = list(executed)
    info["num_pushes"] = num_pushes
    after = SokobanState(level, player, boxes, moves_used, reached)
    team = reached - state.potential + (SUCCESS if solved else 0.0)
    return Transition(after, team, local, ended, solved, info)


def propose(state: SokobanState, action: str | ParseError, terms: Terms) -> Transition:
    """Let the proposer act: its moves are tried out and shown to the planner, not executed."""
    return _promise(state, try_moves(state, action, terms), "", "")


def report(state: SokobanState, call: str, result: str, trial: Trial) -> Transition:
    """Let the tool agent act: the planner will read what it asked for, and the result.

    Args:
        state: The state at the start of the turn.
        call: The calls or the program, bounded.
        result: What came back, bounded.
        trial: What the moves that the result proposes would do, and the local reward.
    """
    trial.info.update(call=call, result=result)
    return _promise(state, trial, call, result)


def _promise(state: SokobanState, trial: Trial, call: str, result: str) -> Transition:
    level, player, boxes, moves_used, before, *_ = state
    moves, done, local, info = trial
    scenes = scenes_of(level)
    promised = scenes.scene(done.player, done.boxes).potential
    info.update(scenes.scene(player, boxes).facts)
    info["moves_used"] = moves_used
    info["proposed"] = list(moves)
    after = SokobanState(level, player, boxes, moves_used, promised, call, result, moves)
    return Transition(after, promised - before, local, info=info)
