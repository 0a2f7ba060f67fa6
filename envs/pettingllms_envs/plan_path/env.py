"""`PlanPathEnv`: Plan-Path as a game with proposals; its texts, words and helper functions."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

from pettingllms.arguments import check_choice, check_whole
from pettingllms.errors import LevelFormatError
from pettingllms.files import packaged, packaged_text
from pettingllms.hooks import Difficulty
from pettingllms.parsing import read_phrase
from pettingllms.prompts import PromptField
from pettingllms.types import ParseError
from pettingllms_envs import grid
from pettingllms_envs.grid import (
    UNREACHABLE,
    Drawing,
    Shape,
    compact,
    find_symbols,
    labelled,
)
from pettingllms_envs.level_files import read_blocks
from pettingllms_envs.plan_path.rules import (
    MAX_SIZE,
    MIN_MOVES,
    MIN_SIZE,
    Level,
    Maze,
    Request,
    RuledMaze,
    canonical_form,
    generate,
    legal_moves,
    maze_of,
    moves_of,
    shortest_path,
    target_cell,
    walk,
)
from pettingllms_envs.planning.env import (
    MOVE_READER,
    GameArguments,
    PlanningEnv,
    PlanningState,
    ToolWork,
    Trial,
    Words,
    field,
    moves_json,
    page,
    why_unchanged,
    words_in,
)
from pettingllms_envs.terrain import (
    FREE,
    WALL,
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

PLAYER, GOAL, PLAYER_ON_GOAL = "P", "G", "*"
_FORMAT = "one P, one G, # and . in rows of equal length"


def _rows(level: Level, opened: int) -> list[str]:
    cells, goal = level.cells, level.goal
    if level.rules:
        cells = cells.translate(shown_symbols(level.rules, opened))
    return (cells[:goal] + GOAL + cells[goal + 1 :]).split("\n")


@lru_cache(maxsize=512)
def _compact(level: Level, opened: int) -> Drawing:
    return compact(_rows(level, opened))


@lru_cache(maxsize=512)
def _labelled(level: Level, opened: int) -> Drawing:
    return labelled(_rows(level, opened))


@lru_cache(maxsize=512)
def _goal_text(level: Level) -> str:
    row, col = divmod(level.goal, level.stride)
    return f"The goal is at row {row}, column {col}."


def compact_board(level: Level, position: int) -> str:
    """The board as rows of symbols without anything between or around them."""
    return _with_player(_compact, level, position)


def labelled_board(level: Level, position: int) -> str:
    """The board with its row and column numbers, symbols divided by spaces."""
    return _with_player(_labelled, level, position)


def _with_player(draw: Callable[[Level, int], Drawing], level: Level, position: int) -> str:
    opened = 0
    if level.rules:
        opened, position = divmod(position, level.area)
    symbol = PLAYER if position != level.goal else PLAYER_ON_GOAL
    return draw(level, opened).with_symbol(*divmod(position, level.cols + 1), symbol)


def places_text(level: Level, position: int) -> str:
    """Sentences with the places of player and goal, and on the doors that are open."""
    more = ""
    if level.rules:
        more = _under_player(level, position)
        opened, position = divmod(position, level.area)
        more = opened_text(level.rules, opened) + more
    row, col = divmod(position, level.cols + 1)
    return f"The player is at row {row}, column {col}. {_goal_text(level)}{more}"


# Agents of a turn, branches and later turns often see the player in the same place.
@lru_cache(maxsize=4096)
def scene_text(level: Level, position: int) -> str:
    """What prompts show of a scene: the board, and below it the places and the rules."""
    places = places_text(level, position)
    return f"{labelled_board(level, position)}\n{places}{rules_text(level.rules)}"


def _under_player(level: Level, position: int) -> str:
    opened, cell = divmod(position, level.area)
    return under_text(level.rules, level.cells, opened, [cell], level.stride)


def centred_rows(level: Level, position: int) -> list[str]:
    """The board rolled so that the player is in the middle.

    The board gets one more row and one more column of walls, which mark its edge, and is then
    seen as a torus: (rows + 1) rows of (cols + 1) symbols, with the player in row (rows + 1) // 2
    and column (cols + 1) // 2.
    """
    height, width = level.rows + 1, level.cols + 1
    row, col = divmod(position % level.area, width)
    # The extra column of walls is part of the torus: it shows where the board ends.
    left = (col - width // 2) % width
    lines = [line + WALL for line in compact_board(level, position).split("\n")]
    lines.append(WALL * width)
    top = (row - height // 2) % height
    return [(line * 2)[left : left + width] for line in lines[top:] + lines[:top]]


def level_text(level: Level, position: int | None = None) -> str:
    """A level in the format that `parse_level` reads, with what `under_text` adds."""
    position = level.start if position is None else position
    board = compact_board(level, position)
    return f"{board}\n{level.rules}{_under_player(level, position)}" if level.rules else board


def parse_levels(text: str) -> list[Level]:
    """Read a file of levels, divided by blank lines; errors name the line of the file."""
    return read_blocks(text, parse_level, _FORMAT)


def parse_level(text: str) -> Level:
    """Read a level, strictly.

    Args:
        text: One line per row, of `#` (wall), `.` (free), one `P` (start), one `G` (goal), and
            letters with rules, if the lines below are rules as `pettingllms_envs.terrain` says.

    Raises:
        LevelFormatError: If a symbol is unknown, rows differ in length, P or G is missing or occurs
            twice, a side is longer than 64, or no path leads from P to G. Names line and column.
    """
    rows, rules, line = read_board(text, WALL + FREE + PLAYER + GOAL)
    stride = len(rows[0]) + 1
    places: list[int] = []
    for symbol in (PLAYER, GOAL):
        found = find_symbols(rows, symbol)
        if not found:
            raise LevelFormatError(f"there is no {symbol}", allowed=_FORMAT)
        if len(found) > 1:
            row, col = found[1]
            raise LevelFormatError(f"a second {symbol}", line + row, col + 1, _FORMAT)
        places.append(found[0][0] * stride + found[0][1])
    start, goal = places
    cells = "\n".join(rows).replace(PLAYER, FREE).replace(GOAL, FREE)
    if rules:
        cells = cells.translate(symbols_of(rules))
    level = Level(len(rows), len(rows[0]), cells, start, goal, 0, rules)
    # Made anew, since the rewards of the level below are not those of one of length 0.
    shortest = (RuledMaze if rules else Maze)(level).distance(start)
    if shortest == UNREACHABLE:
        row, col = divmod(goal, stride)
        problem = "no path leads from P to G"
        raise LevelFormatError(problem, line + row, col + 1, "a goal that can be reached")
    return level._replace(shortest=shortest)


_SHAPES = {
    symbol: (Shape("rectangle", 0, fill, grid.LINE), *marks)
    for symbol, fill, *marks in (
        (WALL, grid.STONE),
        (FREE, grid.PAPER),
        (GOAL, grid.GREEN),
        (PLAYER, grid.PAPER, Shape("ellipse", 5, grid.BLUE)),
        (PLAYER_ON_GOAL, grid.GREEN, Shape("ellipse", 5, grid.BLUE)),
    )
}


def draw_image(level: Level, position: int) -> npt.NDArray[np.uint8]:
    """A picture of the board: dark walls, a green goal, a blue player, letters on sand."""
    return grid.board_picture(compact_board(level, position).split("\n"), _SHAPES)


_CALL = re.compile(
    r"(?:(?:i )?call )?(?:(path|distance|neighbours)\s*\(\s*(?:row\s*=\s*)?)?(-?[0-9]{1,4})"
    r"(?:\s*,\s*|\s+)(?:col\s*=\s*)?(-?[0-9]{1,4})\s*(\)?)",
    re.IGNORECASE | re.ASCII,
)


class HelperCall(NamedTuple):
    """A call of a helper function for one cell."""

    name: str
    """`path`, `distance` or `neighbours`."""
    row: int
    """Row of the cell, as the agent wrote it: it may be off the board."""
    col: int
    """Column of the cell, as the agent wrote it."""

    def __str__(self) -> str:
        return f"{self.name}({self.row}, {self.col})"


def read_call(text: str) -> HelperCall | ParseError:
    """Read the call of an answer; two bare numbers alone mean `path` of that cell."""
    return read_phrase(text, _call_in, needs_mark=False)


def _call_in(said: str) -> HelperCall | ParseError:
    found = _CALL.fullmatch(said)
    if found is None or bool(found[1]) != bool(found[4]):
        return ParseError(f"no call of {', '.join(_FUNCTIONS)}")
    return HelperCall((found[1] or "path").lower(), int(found[2]), int(found[3]))


def answer(level: Level, position: int, call: HelperCall, max_moves: int) -> ToolWork:
    """What the helper function gives, at most `max_moves` moves; only free cells are answered."""
    name, row, col = call
    if not (0 <= row < level.rows and 0 <= col < level.cols):
        return _without_moves(call, "none: that cell is not on the board")
    if not level.is_free(row, col):
        return _without_moves(call, "none: that cell is a wall")
    return _FUNCTIONS[name](maze_of(level), position, call, max_moves)


def _without_moves(call: HelperCall, result: str) -> ToolWork:
    is_useful = not result.startswith("none: ")
    return ToolWork("", str(call), result, f"{call} gave {result}", is_useful=is_useful)


def _path(maze: Maze, position: int, call: HelperCall, max_moves: int) -> ToolWork:
    moves = shortest_path(maze, position, maze.level.cell(call.row, call.col))
    if moves is None:
        return _without_moves(call, "none: that cell cannot be reached")
    if not moves:
        return _without_moves(call, "none: the player stands on that cell")
    # No more than can be executed: the rest would be a proposal that nobody may keep.
    first = moves[:max_moves]
    cut = f" (the first {max_moves} of {len(moves)} moves)" if len(moves) > max_moves else ""
    return ToolWork(first, str(call), moves_json(first) + cut)


def _distance(maze: Maze, position: int, call: HelperCall, max_moves: int) -> ToolWork:
    moves = shortest_path(maze, position, maze.level.cell(call.row, call.col))
    return _without_moves(call, "unreachable" if moves is None else str(len(moves)))


def _neighbours(maze: Maze, position: int, call: HelperCall, max_moves: int) -> ToolWork:
    moves = legal_moves(maze, maze.moved(position, maze.level.cell(call.row, call.col)))
    return _without_moves(call, moves_json(moves))


_FUNCTIONS: Mapping[str, Callable[[Maze, int, HelperCall, int], ToolWork]] = {
    "path": _path,
    "distance": _distance,
    "neighbours": _neighbours,
}


_PACKAGE = "pettingllms_envs.plan_path"
VIEWS = ("board", "centred")


@cache
def words(view: str) -> Words:
    """The words of prompts in a view, one of `VIEWS`."""
    parts = packaged(_PACKAGE)["parts"]
    return words_in(_PACKAGE, view, map=parts[view], functions=parts["functions"])


def _centred(level: Level, position: int) -> str:
    return "\n".join(map(" ".join, centred_rows(level, position)))


def _centred_scene(level: Level, position: int) -> str:
    places = places_text(level, position)
    return f"{_centred(level, position)}\n{places}{rules_text(level.rules)}"


def _centred_compact(level: Level, position: int) -> str:
    return "\n".join(centred_rows(level, position))


@cache
def fields(view: str) -> dict[str, PromptField[PlanningState]]:
    """The placeholders of the game in a view."""
    scene, board, compact_map = scene_text, labelled_board, compact_board
    if view == "centred":
        scene, board, compact_map = _centred_scene, _centred, _centred_compact
    return {
        "scene": field("`board` and, on the line below it, `places`; then `rules`", scene),
        "board": field("the map, symbols divided by spaces, as the argument view says", board),
        "board_compact": field(
            "the map, one line per row, nothing between the symbols", compact_map
        ),
        "board_flat": field(
            "the map without line breaks",
            lambda level, position: compact_map(level, position).replace("\n", ""),
        ),
        "places": field(
            "sentences with the cells of player and goal, open doors, a letter under the player",
            places_text,
        ),
        "rules": field(
            "what holds in this level alone; begins with a line break unless it is empty",
            lambda level, position: rules_text(level.rules),
        ),
        "rows": field("number of rows", lambda level, position: level.rows),
        "cols": field("number of columns", lambda level, position: level.cols),
        "row": field(
            "the player's row", lambda level, position: position % level.area // level.stride
        ),
        "col": field("the player's column", lambda level, position: position % level.stride),
        "goal_row": field("the goal's row", lambda level, position: level.goal // level.stride),
        "goal_col": field("the goal's column", lambda level, position: level.goal % level.stride),
    }


# The planner often does what was proposed, and branches of a group often the same.
@lru_cache(maxsize=4096)
def attempt(level: Level, position: int, moves: str, max_moves: int) -> Trial:
    """Where moves lead, of which the first `max_moves` count."""
    maze, kept = maze_of(level), moves[:max_moves]
    target, executed, illegal = walk(maze, position, kept)
    unchanged = why_unchanged(moves, executed) if target == position else ""
    outlook = maze.outlook(target)
    solved, num_cut = outlook.distance == 0, len(moves) - len(kept)
    about = (outlook, num_cut)
    return Trial(
        target, outlook.potential, solved, kept, executed, illegal, unchanged, "", False, about
    )


def _with_rules(number: int) -> dict[str, Any]:
    """The attributes of a difficulty by its number, from extreme on."""
    size = {"size": 4 * number - 4, "obstacle_ratio": 0.25, "rules": 3}
    # One turn: a program that reads no rules gets no second try.
    return {**size, "min_moves": 4 * number - 2, "moves_per_turn": 12 * number, "max_turns": 1}


@page(size=6)
class PlanPathEnv(PlanningEnv):
    """Lead a player through a maze to the goal.

    ## Task

    A board of free cells and walls, a player, a goal. The player moves up, down, left and
    right, one cell a move. The task is solved when the player is on the goal, and only
    then. Every level can be solved within the turns of an episode. With `rules`, some cells have
    rules that are drawn with the level: ice on which a move goes on, one-way cells, keys that open
    doors. What a letter on the board means differs from level to level and stands below the board,
    in prompts and in what programs read; a fixed program that knows the walls alone solves few.

    ## Observation

    The rules, the turn, why the last turn changed nothing if it did not, the board, and where
    player and goal are *now*; for the planner also what its team-mate did this turn.
    `view="board"` draws the board with row and column numbers. `view="centred"` rolls it so that
    the player is in the middle of (rows + 1) x (cols + 1) symbols, with one row and one column
    of walls as the edge. `prompt_fields` lists the placeholders of prompts.

    ## Action

    Planner and proposer: a list of moves, `#### ["U","R"]`; also read are a list without
    `####` if it is the only one and ends the text, lower case, words, missing quotes, and
    capital letters alone (`UR`). The first `moves_per_turn` moves are executed in order until
    the goal; a move into a wall or off the board changes nothing.
    Tool, `tool="call"`: one call, `#### path(2, 3)`: `path(row, col)` gives the moves of a
    shortest path from the player to a cell (at most `moves_per_turn`), `distance(row, col)` its
    length, `neighbours(row, col)` the legal moves on a cell. Two numbers alone (`2,3`) mean
    `path`.
    Tool, `tool="python"`: a program in a code block. It runs in the sandbox, reads the board
    from stdin (rows of `#`, `.`, `P`, `G`; below them the rules, if any) and prints a list of
    moves.

    ## Reward

    d are the moves left to the goal (breadth-first search), d0 those at the start. The potential
    is 0.1 * (1 - d / d0) up to d0 and 0.01 * (d0 / d - 1) beyond it; -0.01 where drawn rules leave
    no way.

    ## Info keys

    - `position`: the player's (row, column) after the action.
    - `distance`: moves left to the goal, -1 if drawn rules leave no way.
    - `shortest`: moves from the start to the goal on a shortest path.
    - `moves_used`: moves executed in the episode, illegal ones not counted.
    - `optimality`: shortest / moves_used once solved, else 0.
    - `executed`: (planner) the moves that were executed.
    - `illegal_moves`: number of illegal moves.
    - `cut_moves`: number of moves beyond `moves_per_turn`.
    - `unused_moves`: number of moves after the goal.
    - `proposed`: (tool, proposer) the moves proposed to the planner.
    - `promised_distance`: (tool, proposer) moves left if they were executed.

    ## Arguments

    - `size`: rows and columns, 4 to 64.
    - `rows`: number of rows, if it is not `size`.
    - `cols`: number of columns, if it is not `size`.
    - `obstacle_ratio`: probability of a wall, 0 to 0.9.
    - `rules`: how many rules are drawn with each level, 0 to 3: of ice, one-way cells, keys with
      doors. Letters on the board mean them; what each letter means is part of the level.
    - `min_moves`: minimum length of the shortest path; None: 4, or `max_moves` if that is less.
    - `max_moves`: maximum length of the shortest path; None: `max_turns * moves_per_turn`.
    - `tool`: what the tool agent writes: `"python"`, a program, or `"call"`, one helper call.
    - `view`: `"board"` or `"centred"`.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a level's content
      up to rotation, reflection and exchange of start and goal (not with rules), by what letters
      mean.
    - `levels`: levels to draw from instead of generating: a path or pattern of files with levels
      divided by blank lines, or a list of level texts (rows of `#`, `.`, one `P`, one `G`, and
      letters whose rules stand below: `q: ice`, `q: one-way R`, `k: key of m`, `m: door of k`);
      `split` and the ranges do not apply to them. `reset(options={"level": text})` sets one
      episode's level.

    ## Source

    Plan-Path of Stronger-MAS (arXiv 2510.11062). Changed: the reward is a potential by
    breadth-first distance, levels are certified and split by content, the position is current.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "plan_path_v0",
        "render_modes": ["ansi", "human", "rgb_array"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "greedy", "random", "there-and-back")
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"size": 6, "max_moves": 8},
            "paper": {"size": 10, "obstacle_ratio": 0.22, "max_turns": 4},
            "medium": {"size": 10, "obstacle_ratio": 0.3, "min_moves": 8},
            "hard": {"size": 16, "obstacle_ratio": 0.35, "min_moves": 20, "moves_per_turn": 20},
            "expert": {"size": 32, "obstacle_ratio": 0.38, "min_moves": 60, "moves_per_turn": 60},
            "extreme": _with_rules(5),
        },
        _with_rules,
        last=8,
    )
    # A breadth-first search, as a tool agent would write it.
    fixed_program: ClassVar[str] = packaged_text(_PACKAGE, "program.txt")
    words = words("board")
    tools: ClassVar[tuple[str, ...]] = ("python", "call")
    own_fields = fields("board")
    default_limits = (4, 10)
    _no_answer = ""
    _answers = MOVE_READER
    _canonical = staticmethod(canonical_form)
    _draw = staticmethod(generate)
    _read_level = staticmethod(parse_level)
    _read_level_file = staticmethod(parse_levels)
    _attempt = staticmethod(attempt)
    _plan = staticmethod(moves_of)
    _write = staticmethod(moves_json)
    _board = staticmethod(level_text)

    @classmethod
    def _facts(cls, state: PlanningState, trial: Trial, is_done: bool) -> dict[str, Any]:
        reached, num_cut = trial.about
        level, position, used = state[:3]
        executed, kept, illegal = trial.executed, trial.kept, trial.num_illegal
        if is_done:
            used += len(executed)
        _, left, place = reached if is_done else maze_of(level).outlook(position)
        info: dict[str, Any] = {
            "illegal_moves": illegal,
            "cut_moves": num_cut,
            "unused_moves": len(kept) - len(executed) - illegal,
            "position": place,
            "distance": left,
            "shortest": level.shortest,
            "moves_used": used,
            "optimality": 0.0 if left else level.shortest / used,
        }
        if is_done:
            info["executed"] = tuple(executed)
        else:
            info["proposed"] = tuple(kept)
            info["promised_distance"] = reached.distance
        return info

    def _read_call(self, level: Level, text: str) -> HelperCall | ParseError:
        return read_call(text)

    def _answer_call(self, state: PlanningState, call: HelperCall) -> ToolWork:
        return answer(state.level, state.position, call, self.moves_per_turn)

    def __init__(
        self,
        *,
        size: int = 10,
        rows: int | None = None,
        cols: int | None = None,
        obstacle_ratio: float = 0.22,
        rules: int = 0,
        min_moves: int | None = None,
        max_moves: int | None = None,
        moves_per_turn: int = 10,
        tool: str = "python",
        view: str = "board",
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        **shell: Unpack[GameArguments],
    ) -> None:
        check_choice("view", view, VIEWS)
        size = check_whole("size", size, MIN_SIZE, MAX_SIZE)
        super().__init__(
            words=words(view),
            fields=fields(view),
            tool=tool,
            moves_per_turn=moves_per_turn,
            **shell,
        )
        self.view = view
        shape = (size if rows is None else rows, size if cols is None else cols)
        low, high = self._range_of_moves(min_moves, max_moves, MIN_MOVES)
        self._request = Request(*shape, obstacle_ratio, low, high, split, rules).checked()
        self.board = f"{shape[0]}x{shape[1]}" if levels is None else "levels"
        self._read_levels(levels)

    def _rgb_array(self, state: PlanningState) -> Any:
        return draw_image(state.level, state.position)

    def _scripted(self, state: PlanningState, agent: str, policy: str, rng: random.Random) -> str:
        level, position, limit = state.level, state.position, self.moves_per_turn
        if agent == "tool_0" and self.tool == "call":
            target = target_cell(level, position, policy, limit, rng)
            row, col = divmod(target, level.stride)
            return f"#### path({row}, {col})" if self._is_marked(agent) else f"{row},{col}"
        searches = policy == "oracle" and not self._tool_decides and not level.rules
        if agent == "tool_0" and searches:
            return (
                f"```python\n{self.fixed_program}```"  # it solves every level, not this one alone
            )
        return super()._scripted(state, agent, policy, rng)
