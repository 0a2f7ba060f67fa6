"""`SokobanEnv`: Sokoban as a game with proposals, its policies, boards as text and pictures.

Levels are read from XSB boards, and files of them such as Boxoban's.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from pettingllms.arguments import check_flag, check_whole
from pettingllms.errors import LevelFormatError, UnreachableRequest
from pettingllms.files import packaged_text
from pettingllms.hooks import Difficulty
from pettingllms.prompts import PromptField
from pettingllms_envs import grid
from pettingllms_envs.grid import (
    Drawing,
    Shape,
    bits_of,
    cells_of,
    compact,
    find_symbols,
    flood,
    labelled,
)
from pettingllms_envs.level_files import read_blocks
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
from pettingllms_envs.sokoban.rules import (
    BOX,
    BOX_ON_GOAL,
    FLOOR,
    GOAL,
    MAX_SIZE,
    MIN_SIZE,
    PLAYER,
    PLAYER_ON_GOAL,
    WALL,
    Level,
    Placement,
    Request,
    Warehouse,
    canonical_form,
    certify,
    generate,
    is_small,
    outlook_of,
    warehouse_of,
)
from pettingllms_envs.terrain import (
    FREE,
    opened_text,
    read_board,
    rules_text,
    shown_symbols,
    symbols_of,
    under_text,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SYMBOLS = WALL + FLOOR + GOAL + BOX + BOX_ON_GOAL + PLAYER + PLAYER_ON_GOAL

SHOWN_FLOOR = "_"
"""Free floor where agents read it, as in some XSB files: a space would be no symbol of its own."""

MAX_BOXES = 10

PUSHES = """ Boxes slide in the same way, and enter no keys and doors that are not free cells yet. \
A push needs a player that can enter the cell of the box; the box moves first, and only the first \
step of a move pushes: a sliding player stops before a box."""
"""What prompts say of rules beyond `pettingllms_envs.terrain.WORDS`."""

_FLOOR = str.maketrans("-_", FLOOR * 2)
_LETTER = re.compile(r"[a-z]")
_THING = re.compile(r"[ .$*@+]")
_REMARK = re.compile(r";|[A-Za-z][A-Za-z -]+:")


def level_text(level: Level) -> str:
    """A level as an XSB board, with the lines of its rules below it."""
    return full_text(level, level.start)


def board_text(level: Level, place: Placement) -> str:
    """The board in XSB symbols, one line per row."""
    return _with_player(_plain(level, place.boxes, place.opened), level, place.player)


def full_text(level: Level, place: Placement) -> str:
    """The board in XSB symbols and, with rules, their lines and those of `under_text`."""
    return board_text(level, place) + _rule_lines(level, place)


def shown_text(level: Level, place: Placement) -> str:
    """The board as agents and their programs read it: free floor is `_`."""
    return board_text(level, place).replace(FLOOR, SHOWN_FLOOR)


def program_text(level: Level, place: Placement) -> str:
    """What programs read: `shown_text` and, with rules, the same lines as `full_text`."""
    return shown_text(level, place) + _rule_lines(level, place)


def labelled_text(level: Level, place: Placement) -> str:
    """The board with row and column numbers, divided by spaces."""
    return _with_player(_still(level, place.boxes, place.opened)[0], level, place.player)


def places_text(level: Level, place: Placement) -> str:
    """Sentences with the cells of player, boxes and goals, open doors, hidden letters."""
    row, col = divmod(place.player, level.cols + 1)
    still, more = _still(level, place.boxes, place.opened)[1], ""
    if level.rules:
        more = opened_text(level.rules, place.opened) + _under(level, place)
    return f"Player at (row, column) ({row}, {col}). {still}{more}"


# Agents of a turn, branches and later turns often see the same scene.
@lru_cache(maxsize=4096)
def scene_text(level: Level, place: Placement) -> str:
    """What prompts show of a scene: the board, and below it the places and the rules."""
    rules = rules_text(level.rules, PUSHES)
    return f"{labelled_text(level, place)}\n{places_text(level, place)}{rules}"


def _under(level: Level, place: Placement) -> str:
    covered = [place.player, *cells_of(place.boxes)]
    return under_text(level.rules, level.cells, place.opened, covered, level.stride)


def _rule_lines(level: Level, place: Placement) -> str:
    return f"\n{level.rules}{_under(level, place)}" if level.rules else ""


def cell_list(bits: int, stride: int) -> str:
    """The cells of a bit-board as `(row, column)`, divided by commas."""
    return ", ".join([f"({cell // stride}, {cell % stride})" for cell in cells_of(bits)]) or "none"


# Most moves push no box: only the player has another place.
@lru_cache(maxsize=1024)
def _plain(level: Level, boxes: int, opened: int) -> Drawing:
    return compact(_rows(level, boxes, opened, FLOOR))


@lru_cache(maxsize=1024)
def _still(level: Level, boxes: int, opened: int) -> tuple[Drawing, str]:
    """The board without the player as prompts show it, and the places of all else."""
    stride, goals = level.stride, level.goals
    places = (
        f"Boxes not on goals: {cell_list(boxes & ~goals, stride)}. "
        f"Goals without a box: {cell_list(goals & ~boxes, stride)}."
    )
    return labelled(_rows(level, boxes, opened, SHOWN_FLOOR)), places


def _rows(level: Level, boxes: int, opened: int, floor: str) -> list[str]:
    """The rows of the board without the player; `floor` is the symbol of free floor."""
    stride, goals = level.stride, level.goals
    # Reversed, since bit 0 is the last digit; the guard column is cut by the slices.
    bits = f"{level.floor:0{level.rows * stride}b}"[::-1]
    text = bits.replace("0", WALL).replace("1", floor)
    if level.rules:
        text = level.cells.translate(shown_symbols(level.rules, opened)).replace(FREE, floor)
    things = ((goals & ~boxes, GOAL), (boxes & ~goals, BOX), (boxes & goals, BOX_ON_GOAL))
    for cells, symbol in things:
        for cell in cells_of(cells):
            text = text[:cell] + symbol + text[cell + 1 :]
    return [text[start : start + level.cols] for start in range(0, len(text), stride)]


def _with_player(drawing: Drawing, level: Level, player: int) -> str:
    symbol = PLAYER_ON_GOAL if level.goals >> player & 1 else PLAYER
    return drawing.with_symbol(*divmod(player, level.cols + 1), symbol)


def read_level(text: str) -> Level:
    """Read one XSB board: `#` wall, `@` player, `$` box, `.` goal, `+`, `*` both on a goal.

    Free floor is a space, `-` or `_`. Letters are cells with rules, if the lines below the board
    are rules as `pettingllms_envs.terrain` says.

    Args:
        text: Rows, one per line; shorter ones are filled up with floor on the right.

    Returns:
        The level; small ones (`is_small`) with the certificate `"optimal"`, others without. Its
        floor is what the player could reach without boxes.

    Raises:
        LevelFormatError: For an unknown symbol, not exactly one player, boxes that are
            not as many as goals, none or more than 10 boxes, a board that is not enclosed by walls,
            a box or a goal that is walled off, a level that is solved already or has no solution,
            or more than 64 rows or columns; it names line and column, counted from 1.
    """
    rows, rules, line = read_board(text, SYMBOLS, FLOOR, _FLOOR)
    level = _level_of([_LETTER.sub(FLOOR, row) for row in rows], line, bool(rules))
    if not rules:
        return level
    cells = [_THING.sub(FREE, row).translate(symbols_of(rules)) for row in rows]
    level = level._replace(cells="\n".join(cells), rules=rules)
    if (moves := warehouse_of(level).solve(level.start)) is None:
        raise LevelFormatError("by its rules the level has no solution", line)
    return level._replace(certificate="optimal", num_moves=len(moves))


def read_levels_of_file(text: str) -> list[Level]:
    """Read a file of levels, as Boxoban's and the usual XSB collections are.

    Boards are divided by blank lines, lines that begin with `;`, and lines such as `Title: ...`.

    Raises:
        LevelFormatError: As `read_level`, with the line in the file; or if there is no level.
    """
    return read_blocks(text, read_level, "boards divided by blank lines", _REMARK.match)


def _level_of(rows: list[str], top: int, has_rules: bool) -> Level:
    stride = len(rows[0]) + 1
    players = find_symbols(rows, PLAYER + PLAYER_ON_GOAL)
    if len(players) != 1:
        place = _place(players[1], top) if players else (top, 0)
        problem = f"{len(players)} players" if players else "no player"
        raise LevelFormatError(problem, *place, "exactly one @ or +")
    player = players[0][0] * stride + players[0][1]
    floor = flood(bits_of(rows, SYMBOLS.replace(WALL, "")), 1 << player, stride)
    goals = bits_of(rows, GOAL + BOX_ON_GOAL + PLAYER_ON_GOAL)
    level = Level(len(rows), stride - 1, floor, goals, bits_of(rows, BOX + BOX_ON_GOAL), player)
    _check_walls(rows, level, top)
    _check_boxes(level, top)
    is_certain = is_small(floor.bit_count(), level.boxes.bit_count()) and not has_rules
    return certify(level, top) if is_certain else level


def _check_walls(rows: list[str], level: Level, top: int) -> None:
    last_row, last_col = level.rows - 1, level.cols - 1
    for row, col in find_symbols(rows, SYMBOLS.replace(WALL, "")):
        is_floor = level.floor >> row * level.stride + col & 1
        if is_floor and (row in (0, last_row) or col in (0, last_col)):
            problem = "the floor is open to the edge of the board"
            allowed = "walls all around the cells that the player can reach"
            raise LevelFormatError(problem, *_place((row, col), top), allowed)
        if not is_floor and rows[row][col] != FLOOR:
            problem = f"{rows[row][col]!r} is walled off from the player"
            allowed = "boxes and goals on cells that the player could reach without boxes"
            raise LevelFormatError(problem, *_place((row, col), top), allowed)


def _check_boxes(level: Level, top: int) -> None:
    num_boxes, num_goals = level.boxes.bit_count(), level.goals.bit_count()
    if num_boxes != num_goals or not 0 < num_boxes <= MAX_BOXES:
        problem = f"{num_boxes} boxes and {num_goals} goals"
        allowed = f"as many boxes as goals, 1 to {MAX_BOXES}"
        raise LevelFormatError(problem, top, 0, allowed)
    if level.boxes == level.goals:
        raise LevelFormatError("all boxes are on goals already", top, 0, "a box to push")
    if warehouse_of(level).pushes_left(level.start) < 0:
        problem = "the level cannot be solved: a box can reach no goal, or boxes block each other"
        raise LevelFormatError(problem, top, 0, "boxes that can be pushed to the goals")


def _place(cell: tuple[int, int], top: int) -> tuple[int, int]:
    return cell[0] + top, cell[1] + 1


_RING, _SHIRT = Shape("ellipse", 7, None, grid.GREEN, 3), Shape("ellipse", 5, grid.BLUE)
_WOOD, _WOOD_HOME = (
    Shape("rectangle", 4, fill, (120, 82, 36)) for fill in ((206, 150, 82), (120, 178, 98))
)
_SHAPES = {
    symbol: (Shape("rectangle", 0, fill, grid.LINE), *marks)
    for symbol, fill, *marks in (
        (WALL, grid.STONE),
        (FLOOR, grid.PAPER),
        (GOAL, grid.PAPER, _RING),
        (BOX, grid.PAPER, _WOOD),
        (BOX_ON_GOAL, grid.PAPER, _RING, _WOOD_HOME),
        (PLAYER, grid.PAPER, _SHIRT),
        (PLAYER_ON_GOAL, grid.PAPER, _RING, _SHIRT),
    )
}


def draw_image(level: Level, place: Placement) -> npt.NDArray[np.uint8]:
    """A picture: dark walls, green rings for goals, boxes (green at home), a blue player."""
    return grid.board_picture(board_text(level, place).split("\n"), _SHAPES)


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
    "scene": field("`board` and, on the line below it, `places`; then `rules`", scene_text),
    "board": field(
        "the board with row and column numbers, symbols divided by spaces", labelled_text
    ),
    "board_compact": field("the board, one line per row, nothing between the symbols", shown_text),
    "board_flat": field(
        "the board without line breaks",
        lambda level, place: shown_text(level, place).replace("\n", ""),
    ),
    "rules": field(
        "what holds in this level alone; begins with a line break unless it is empty",
        lambda level, place: rules_text(level.rules, PUSHES),
    ),
    "places": field(
        "sentences with the cells of player, boxes and goals, open doors, letters under things",
        places_text,
    ),
    "places_compact": field(
        "row and column of the player, of each box and of each goal: 213243; two digits each "
        "where the board has more than ten rows or columns",
        _places_compact,
    ),
    "player": field(
        "the player's (row, column)",
        lambda level, place: cell_list(1 << place.player, level.stride),
    ),
    "boxes": field(
        "the (row, column) of all boxes",
        lambda level, place: cell_list(place.boxes, level.stride),
    ),
    "goals": field(
        "the (row, column) of all goals",
        lambda level, place: cell_list(level.goals, level.stride),
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
    _read_level = staticmethod(read_level)
    _read_level_file = staticmethod(read_levels_of_file)
    _attempt = staticmethod(attempt)
    _plan = staticmethod(moves_of)
    _write = staticmethod(moves_json)
    _board = staticmethod(full_text)

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
        return program_text(level, position)

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
        return draw_image(state.level, state.position)
