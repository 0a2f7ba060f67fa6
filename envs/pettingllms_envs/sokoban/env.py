"""`SokobanEnv`: Sokoban as a game with proposals, its policies, and the words of its prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Unpack

from pettingllms.arguments import check_flag, check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.files import packaged_text
from pettingllms.hooks import Difficulty
from pettingllms.prompts import PromptField
from pettingllms_envs.grid import cells_of
from pettingllms_envs.planning.env import (
    MOVE_READER,
    POLICIES,
    GameArguments,
    PlanningEnv,
    PlanningState,
    Trial,
    Words,
    field,
    moves_json,
    page,
    why_unchanged,
    words_in,
)
from pettingllms_envs.sokoban import text
from pettingllms_envs.sokoban.rules import (
    MAX_SIZE,
    MIN_SIZE,
    Level,
    Placement,
    Request,
    Warehouse,
    canonical_form,
    generate,
    outlook_of,
    warehouse_of,
)
from pettingllms_envs.terrain import rules_text

ORACLE_NODES = 40_000
"""Search nodes of the oracle where no reference solution leads on."""


def moves_of(
    level: Level, place: Placement, policy: str, num_moves: int, rng: random.Random
) -> str:
    """The moves of a policy, at most `num_moves`.

    Oracle: see `oracle_moves`, and where there are none as greedy, which again and again makes the
    nearest push that brings a box nearer to a goal, or a random move without one in reach; random
    draws legal moves uniformly; never-push and there-and-back solve nothing and show what idling
    returns: see `idle_walk`.
    """
    house, moves = warehouse_of(level), ""
    if policy in ("never-push", "there-and-back"):
        return idle_walk(house, place, returns=policy == "there-and-back")[:num_moves]
    if policy == "oracle":
        if (found := oracle_moves(house, place)) is not None:
            return found[:num_moves]
        policy = "greedy"
    while len(moves) < num_moves and (legal := dict(house.after(place))):
        more = house.nearest_push(place) if policy == "greedy" else ""
        more = more or rng.choice(list(legal))
        place, moves = house.play(place, more)[0], moves + more
    return moves[:num_moves]


def oracle_moves(house: Warehouse, place: Placement) -> str | None:
    """A solution, or None if the level is lost or too large to search.

    On the way of the level's reference solution, that; otherwise a shortest one.
    """
    here, solution = house.level.start, house.level.solution
    for index, move in enumerate(solution):
        if here == place:
            return solution[index:]
        here = house.step(here, move)
    try:
        # Lost levels would be searched in vain.
        return house.solve(place, ORACLE_NODES) if house.pushes_left(place) >= 0 else None
    except UnreachableRequest:
        return None


def idle_walk(house: Warehouse, place: Placement, returns: bool) -> str:
    """The way, without a push, to what has the highest potential of all that can be reached.

    With `returns`, back to the player's first cell from any other.
    """
    walks, home = house.walks(place), house.level.player
    if returns and place.player != home:
        return next((way for at, way in walks.items() if at.player == home), "")
    return walks[max(walks, key=lambda at: house.outlook(at).potential)]


@cache
def words(stop_when_lost: bool) -> Words:
    """The words of prompts; they say whether a lost level ends the episode."""
    end = " and ends the episode" if stop_when_lost else ""
    return words_in("pettingllms_envs.sokoban", end=end)


def _places_compact(level: Level, place: Placement) -> str:
    cells = (place.player, *cells_of(place.boxes), *cells_of(level.goals))
    places = (number for cell in cells for number in divmod(cell, level.stride))
    num_digits = len(str(max(level.rows, level.cols) - 1))
    return "".join(f"{number:0{num_digits}}" for number in places)


FIELDS: dict[str, PromptField[PlanningState]] = {
    "scene": field("`board` and, on the line below it, `places`; then `rules`", text.scene_text),
    "board": field(
        "the board with row and column numbers, symbols divided by spaces", text.labelled_text
    ),
    "board_compact": field(
        "the board, one line per row, nothing between the symbols", text.shown_text
    ),
    "board_flat": field(
        "the board without line breaks",
        lambda level, place: text.shown_text(level, place).replace("\n", ""),
    ),
    "rules": field(
        "what holds in this level alone; begins with a line break unless it is empty",
        lambda level, place: rules_text(level.rules, text.PUSHES),
    ),
    "places": field(
        "sentences with the cells of player, boxes and goals, open doors, letters under things",
        text.places_text,
    ),
    "places_compact": field(
        "row and column of the player, of each box and of each goal: 213243; two digits each "
        "where the board has more than ten rows or columns",
        _places_compact,
    ),
    "player": field(
        "the player's (row, column)",
        lambda level, place: text.cell_list(1 << place.player, level.stride),
    ),
    "boxes": field(
        "the (row, column) of all boxes",
        lambda level, place: text.cell_list(place.boxes, level.stride),
    ),
    "goals": field(
        "the (row, column) of all goals",
        lambda level, place: text.cell_list(level.goals, level.stride),
    ),
    "rows": field("number of rows", lambda level, place: level.rows),
    "cols": field("number of columns", lambda level, place: level.cols),
}


# The planner often does what was proposed, and branches of a group often the same.
@lru_cache(maxsize=4096)
def attempt(level: Level, place: Placement, moves: str, max_moves: int) -> Trial:
    """Where moves lead, of which the first `max_moves` count."""
    kept = moves[:max_moves]
    reached, executed, num_illegal, num_pushes = warehouse_of(level).play(place, kept)
    outlook = outlook_of(level, reached)
    worth, is_lost = outlook.potential, outlook.pushes_left < 0
    unchanged = why_unchanged(moves, executed) if reached == place else ""
    solved, about = reached.boxes == level.goals, (outlook, len(moves) - len(kept), num_pushes)
    return Trial(reached, worth, solved, kept, executed, num_illegal, unchanged, "", is_lost, about)


def _with_rules(number: int) -> dict[str, Any]:
    """The attributes of a difficulty by its number, from extreme on."""
    size = {"size": 7, "boxes": 2, "rules": 3, "wall_ratio": 0.15, "moves_per_turn": 10}
    return {**size, "min_moves": 3 * number + 7, "max_moves": 40}


@page(boxes=2)
class SokobanEnv(PlanningEnv):
    """Push all boxes of a warehouse onto goals.

    ## Task

    A walled board with boxes, as many goals, and a player who moves up, down, left and right,
    one cell a move, and pushes a box that is in the way, if the cell beyond it is free. The task
    is solved when every box is on a goal, and only then. With `rules`, some cells have rules that
    are drawn with the level: ice on which players and boxes slide, one-way cells, keys that open
    doors. What a letter on the board means differs from level to level and stands below the board,
    in prompts and in what programs read; a fixed program that knows the walls alone solves few.

    ## Observation

    The rules, the turn, why the last turn changed nothing if it did not, the board as it is now
    with row and column numbers (`#` wall, `@` player, `$` box, `.` goal, `*` box on a goal, `+`
    player on a goal, `_` free floor), the cells of player, boxes and goals; for the planner also
    what its team-mate did this turn. `prompt_fields` lists the placeholders of prompts.

    ## Action

    Planner and proposer: a list of moves, `#### ["U","R"]`; also read are a list without
    `####` if it is the only one and ends the text, lower case, words, missing quotes, and
    capital letters alone (`UR`). The first `moves_per_turn` moves are executed in order until
    the level is solved; an illegal move changes nothing.
    Tool: a program in a closed code block; it reads the board from stdin, without spaces and
    numbers, and prints a list of moves. Rows and columns are numbered from 0.

    ## Reward

    d is the distance of a state: the pushes left (cheapest assignment of boxes to goals, each box
    alone on the board) plus, below 1, the way of the player to the next push that lowers them.
    d0 is that of the start. The potential is 0.1 * (1 - d / d0) up to d0, 0.01 * (d0 / d - 1)
    beyond it, and -0.01 if the level is certainly lost (a box that can reach no goal, or a
    frozen square). With rules d are the moves left of a shortest solution, and all lost levels are
    known.

    ## Termination

    Terminated when the level is solved (`success`) or, with `stop_when_lost`, certainly lost;
    truncated after `max_turns` turns.

    ## Info keys

    - `boxes_home`: boxes on goals after the action.
    - `pushes_left`: lower bound of the pushes left (with rules, the boxes not on goals), -1 if the
      level is certainly lost.
    - `lost`: whether it is certainly lost.
    - `moves_used`: moves executed in the episode, illegal ones not counted.
    - `illegal_moves`: illegal moves in this action.
    - `cut_moves`: moves beyond `moves_per_turn`, which are ignored.
    - `executed`: (planner) the moves that were executed.
    - `num_pushes`: (planner) how many of them pushed a box.
    - `proposed`: (tool, proposer) the moves proposed to the planner.
    - `certificate`: what `level_moves` is: `"optimal"`: the length of a shortest solution;
      `"reference"`: that of some solution; `"none"`: nothing is known (large levels from files).
    - `level_moves`: moves of that solution, 0 if none is known.

    ## Arguments

    - `size`: rows and columns, with the outer walls, 5 to 16.
    - `rows`: number of rows, if it is not `size`.
    - `cols`: number of columns, if it is not `size`.
    - `boxes`: number of boxes, 1 to 6.
    - `wall_ratio`: probability of a wall within the outer walls, 0 to 0.6.
    - `rules`: how many rules are drawn with each level, 0 to 3: of ice, one-way cells, keys with
      doors. Letters on the board mean them; what each letter means is part of the level.
    - `min_moves`: minimum length of the certified solution; None: 4 + 2 per box, less below 6x6.
    - `max_moves`: maximum length of it; None: grows with size and boxes. Both are limited to
      `max_turns * moves_per_turn`.
    - `stop_when_lost`: whether an episode ends when it is certainly lost.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a level's content up
      to rotation, reflection, and the player's place within its region; with rules, by what
      letters mean and by the player's place itself.
    - `levels`: levels to draw from instead of generating: a path or pattern of XSB or Boxoban
      files, or a list of XSB texts, at most 64x64 cells with 10 boxes, rows of any length, with
      letters if their rules stand below (`q: ice`, `q: one-way R`, `k: key of m`, `m: door of k`);
      `split` does not apply to them. `reset(options={"level": text})` sets one episode's level.

    ## Source

    Sokoban of Stronger-MAS (arXiv 2510.11062). Changed: levels are certified and split by
    content, the reward is a potential, lost levels are recognised, time-outs are not successes.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "sokoban_v0",
        "render_modes": ["ansi", "human", "rgb_array"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = (*POLICIES, "never-push", "there-and-back")
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"size": 6, "boxes": 1, "max_moves": 10},
            "paper": {"size": 6, "boxes": 1, "max_turns": 4},
            "medium": {"size": 7, "boxes": 2, "min_moves": 10},
            "hard": {"size": 7, "boxes": 3, "min_moves": 14},
            "expert": {"size": 8, "boxes": 3, "min_moves": 20, "max_moves": 60},
            "extreme": _with_rules(5),
        },
        _with_rules,
        last=7,
    )
    # A search over pushes, first where few of them are left.
    fixed_program: ClassVar[str] = packaged_text("pettingllms_envs.sokoban", "program.txt")
    words = words(stop_when_lost=True)
    own_fields = FIELDS
    default_limits = (4, 20)
    _no_answer = ""
    _answers = MOVE_READER
    _canonical = staticmethod(canonical_form)
    _draw = staticmethod(generate)
    _read_level = staticmethod(text.read_level)
    _read_level_file = staticmethod(text.read_levels_of_file)
    _attempt = staticmethod(attempt)
    _plan = staticmethod(moves_of)
    _write = staticmethod(moves_json)
    _board = staticmethod(text.full_text)

    @classmethod
    def _facts(cls, state: PlanningState, trial: Trial, is_done: bool) -> dict[str, Any]:
        outlook, num_cut, num_pushes = trial.about
        level, position, used = state[:3]
        if not is_done:
            outlook = outlook_of(level, position)
        _, pushes_left, boxes_home = outlook
        info: dict[str, Any] = {
            "illegal_moves": trial.num_illegal,
            "cut_moves": num_cut,
            "boxes_home": boxes_home,
            "pushes_left": pushes_left,
            "lost": pushes_left < 0,
            "certificate": level.certificate,
            "level_moves": level.num_moves,
            "moves_used": used,
        }
        if is_done:
            info["moves_used"] += len(trial.executed)
            info["executed"] = tuple(trial.executed)
            info["num_pushes"] = num_pushes
        else:
            info["proposed"] = tuple(trial.kept)
        return info

    @staticmethod
    def _length(level: Level) -> int:
        return level.num_moves

    @classmethod
    def _program_input(cls, level: Level, position: Placement) -> str:
        return text.program_text(level, position)

    def __init__(
        self,
        *,
        size: int = 6,
        rows: int | None = None,
        cols: int | None = None,
        boxes: int = 1,
        wall_ratio: float = 0.25,
        rules: int = 0,
        min_moves: int | None = None,
        max_moves: int | None = None,
        moves_per_turn: int = 20,
        stop_when_lost: bool = True,
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        **shell: Unpack[GameArguments],
    ) -> None:
        size = check_whole("size", size, MIN_SIZE, MAX_SIZE)
        stop_when_lost = check_flag("stop_when_lost", stop_when_lost)
        super().__init__(
            words=words(stop_when_lost),
            fields=FIELDS,
            moves_per_turn=moves_per_turn,
            stop_when_lost=stop_when_lost,
            **shell,
        )
        height, width = size if rows is None else rows, size if cols is None else cols
        budget = self.max_turns * self.moves_per_turn
        wanted = Request(height, width, boxes, wall_ratio, min_moves, max_moves, split, rules)
        self._request = wanted.checked(budget)
        self.board = f"{height}x{width}" if levels is None else "levels"
        self._read_levels(levels)

    def _rgb_array(self, state: PlanningState) -> Any:
        return text.draw_image(state.level, state.position)
