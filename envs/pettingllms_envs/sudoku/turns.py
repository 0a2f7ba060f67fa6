"""What one action of each role does to the state and what it pays: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pettingllms.transition import ParseError, Transition
from pettingllms_envs.reward import PROGRESS, SUCCESS, Costs
from pettingllms_envs.sudoku.generator import Puzzle
from pettingllms_envs.sudoku.rules import Fill, Grid, Refusal, is_solved, start, write
from pettingllms_envs.sudoku.text import FillAnswer, fills_json

_start = lru_cache(maxsize=512)(start)
_MAX_REFUSALS_SHOWN = 8


class SudokuState(NamedTuple):
    """The state of an episode."""

    puzzle: Puzzle
    grid: Grid
    potential: float = 0.0
    """The potential of the grid; after a proposal, of the grid that it promises."""
    call: str = ""
    """What the tool agent asked for or wrote this turn."""
    result: str = ""
    """The result, for the planner."""
    proposal: tuple[Fill, ...] = ()
    """The fills proposed this turn."""
    refused: str = ""
    """The planner's fills that were refused last turn, for its next prompt."""
    unchanged: str = ""
    """Why the last turn changed nothing, for the next prompts; empty if it changed something."""


class Trial(NamedTuple):
    """What an answer does to a grid."""

    grid: Grid
    potential: float
    """The potential of the grid afterwards."""
    fills: tuple[Fill, ...] = ()
    """The fills that the answer asks for; cells of a grid answer that hold clues are left out."""
    refused: tuple[Refusal, ...] = ()
    is_idle: bool = True
    """Whether the grid is the same afterwards as before."""


def potential(grid: Grid) -> float:
    """Return 0.1 * (right fills - wrong fills) / empty cells of the puzzle, in [-0.1, 0.1].

    It is 0 at the start and 0.1 when solved. Differences of it are the team's reward, so that every
    closed loop adds up to 0 and a wrong grid earns less than an empty one. Wrong fills count as
    much as right ones, or guessing would pay.

    Source: potential-based shaping (Ng, Harada, Russell 1999), without discounting.
    """
    _, _, num_empty, num_right, num_wrong = grid
    return PROGRESS * (num_right - num_wrong) / (num_empty + num_right + num_wrong)


# The planner often writes what was proposed, and branches of a group often the same.
@lru_cache(maxsize=1024)
def try_answer(puzzle: Puzzle, grid: Grid, answer: FillAnswer) -> Trial:
    """Write the fills of an answer, in order; a whole grid clears the old fills first."""
    fills, is_grid = answer
    start_from = grid
    if is_grid:
        start_from, size = _start(puzzle), puzzle.size
        fills = tuple(f for f in fills if f[2] != puzzle.clues[(f[0] - 1) * size + f[1] - 1])
    after, refused = write(puzzle, start_from, fills)
    is_idle = after.cells == grid.cells
    return Trial(after, potential(after), fills, tuple(refused), is_idle)


def decide(state: SudokuState, action: FillAnswer | ParseError, costs: Costs) -> Transition:
    """Play the planner's action: its fills are written and the turn's proposal is settled."""
    puzzle, grid, before, _, _, _, _, _ = state
    trial, local = _judge(puzzle, grid, action, costs)
    grid, reached, fills, refused, is_idle = trial
    solved = is_solved(grid)
    refusals = _refusals(refused) if refused else ""
    unchanged = _unchanged(action, trial) if is_idle else ""
    after = SudokuState(puzzle, grid, reached, "", "", (), refusals, unchanged)
    team = reached - before + SUCCESS * solved
    return Transition(after, team, local, solved, solved, _facts(grid, fills, refused))


def propose(state: SudokuState, action: FillAnswer | ParseError, costs: Costs) -> Transition:
    """Play the proposer's action: its fills are tried out and shown to the planner, not written."""
    trial, local = _judge(state.puzzle, state.grid, action, costs)
    return _promise(state, trial, local)


def report(
    state: SudokuState, call: str, result: str, answer: FillAnswer | None, local: float
) -> Transition:
    """Play the tool agent's action: the planner will read what it asked for, and the result.

    Args:
        state: The state at the start of the turn.
        call: The calls or the program, bounded.
        result: What came back, bounded.
        answer: The fills that the result proposes, if any.
        local: The local reward.
    """
    trial = try_answer(state.puzzle, state.grid, answer or FillAnswer(()))
    done = _promise(state._replace(call=call, result=result), trial, local)
    return done._replace(info={**done.info, "call": call, "result": result})


def cost(trial: Trial, costs: Costs) -> float:
    """Return the local reward of a readable answer; one that changes nothing counts as empty.

    Refused fills cost the same whatever else is in the answer, and never more than an empty answer.
    """
    if trial.is_idle:
        return costs.empty
    return max(costs.empty, len(trial.refused) * costs.illegal) if trial.refused else 0.0


def _judge(
    puzzle: Puzzle, grid: Grid, action: FillAnswer | ParseError, costs: Costs
) -> tuple[Trial, float]:
    if isinstance(action, ParseError):
        return Trial(grid, potential(grid)), costs.malformed
    trial = try_answer(puzzle, grid, action)
    return trial, cost(trial, costs)


def _promise(state: SudokuState, trial: Trial, local: float) -> Transition:
    puzzle, grid, before, call, result, _, refusals, unchanged = state
    _, promised, fills, refused, _ = trial
    after = SudokuState(puzzle, grid, promised, call, result, fills, refusals, unchanged)
    info = _facts(grid, fills, refused)
    info["proposed"] = fills
    return Transition(after, promised - before, local, False, False, info)


def _facts(grid: Grid, fills: Sequence[Fill], refused: Sequence[Refusal]) -> dict[str, Any]:
    return {
        "num_fills": len(fills),
        "num_refused": len(refused),
        "num_empty": grid.num_empty,
        "solvable": grid.num_wrong == 0,
    }


def _unchanged(action: FillAnswer | ParseError, trial: Trial) -> str:
    """Return why the grid is as it was."""
    if isinstance(action, ParseError):
        return "the answer could not be read"
    if not action.fills:
        return "the answer had no fills"
    all_refused = len(trial.refused) == len(trial.fills) > 0
    return "all fills were refused" if all_refused else "the fills repeated what was there"


def _refusals(refused: Sequence[Refusal]) -> str:
    shown = [f"{fills_json([one])[1:-1]} ({reason})" for one, reason in refused]
    more = len(shown) - _MAX_REFUSALS_SHOWN
    return ", ".join(shown[:_MAX_REFUSALS_SHOWN]) + (f", and {more} more" if more > 0 else "")
