"""`SudokuEnv`: Sudoku as a game with proposals; puzzles and fills as text, its policies."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import isqrt
from operator import getitem, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from pettingllms.arguments import check_choice, check_flag, plain
from pettingllms.errors import InvalidArgument, LevelFormatError
from pettingllms.files import packaged, packaged_text
from pettingllms.hooks import Difficulty
from pettingllms.parsing import Item, ListReader
from pettingllms.prompts import PromptField, history_text, of_state
from pettingllms.seeding import check_split
from pettingllms.types import ParseError
from pettingllms_envs.grid import SAND, blank_picture
from pettingllms_envs.level_files import read_lines
from pettingllms_envs.planning.env import (
    GameArguments,
    PlanningEnv,
    PlanningState,
    Trial,
    Words,
    bounded,
    field,
    page,
    words_in,
)
from pettingllms_envs.reward import PROGRESS
from pettingllms_envs.sudoku.drawn import boxes_of, neighbours, read_rules, rules_lines, solutions
from pettingllms_envs.sudoku.generator import (
    DEFAULT_CLUES,
    Puzzle,
    Request,
    check_num_clues,
    check_num_rules,
    generate_of_split,
)
from pettingllms_envs.sudoku.rules import (
    TAKEN,
    TAKEN_DRAWN,
    Fill,
    FillAnswer,
    Grid,
    attempt,
    candidates,
    start,
    text_of,
)
from pettingllms_envs.sudoku.solver import BOX_SHAPES, singles_suffice
from pettingllms_envs.sudoku.symmetry import canonical

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


SYMBOLS = "0123456789ABCDEFG"
"""Symbol of each value in puzzle texts; `.` and `0` are empty cells."""

USUAL_CHARS = 2000
"""Longest answer in the usual form that is remembered with its fills, in characters."""

_FILL = r"\[\d{1,2}, ?\d{1,2}, ?\d{1,2}\]"
_USUAL = re.compile(rf"\[{_FILL}(?>(?:, ?{_FILL})*)\]", re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,4}")
_RULES = re.compile(r"\s(?=boxes|cages|diagonals)")
_TERSE = re.compile(r"[0-9]{3}(?>(?:,[0-9]{3})*)")
MAX_TERSE_SIZE = 9
"""Largest n whose fills can be written as digits: every number has one."""

SHOWN_CHARS = 6000
"""Maximum characters of proposed fills in a prompt: more than 2 n * n fills of any grid need."""


@lru_cache
def reader(size: int) -> ListReader[FillAnswer]:
    """Reads fills or a grid of a puzzle of a size.

    It is a list of `[row, column, value]`, one such triple, several of them without brackets around
    them, a list of n rows of n numbers, or an empty list. Commas may be missing. A text of nothing
    but digits, `123,412`, is fills up to n = 9. More than 2 n * n fills are not an answer.
    """

    def of_usual(text: str) -> FillAnswer | None:
        if size <= MAX_TERSE_SIZE and _TERSE.fullmatch(text):
            text = ",".join(text.replace(",", ""))
        elif not _USUAL.fullmatch(text):
            return None
        numbers = map(int, _DIGITS.findall(text))
        fills = tuple(zip(numbers, numbers, numbers, strict=True))
        return FillAnswer(fills) if len(fills) <= 2 * size * size else None

    def of_items(items: list[Item]) -> FillAnswer | ParseError:
        return answer_of_items(items, size)

    return ListReader(of_items, of_usual, max_usual=USUAL_CHARS)


def answer_of_items(items: list[Item], size: int) -> FillAnswer | ParseError:
    """The fills or the grid that a list is, whatever lists there are around its rows."""
    rows = _rows_of(items)
    if len(rows) > 2 * size * size:
        return ParseError(f"more than {2 * size * size} fills")
    if not all(_NUMBER.fullmatch(word) for row in rows for word in row):
        return ParseError("a list of something other than integers")
    numbers = [list(map(int, row)) for row in rows]
    if all(len(row) == 3 for row in numbers):
        return FillAnswer(tuple((row[0], row[1], row[2]) for row in numbers))
    if len(numbers) == size and all(len(row) == size for row in numbers):
        cells = [(r, c, v) for r, row in enumerate(numbers) for c, v in enumerate(row)]
        return FillAnswer(tuple(cells), is_grid=True)
    return ParseError(f"no list of [row, column, value] and no {size}x{size} grid of numbers")


def _rows_of(items: list[Item]) -> list[list[str]]:
    """The words of every list that holds words, in order."""
    words = [item for item in items if isinstance(item, str)]
    if words and len(words) == len(items):
        return [words]
    rows: list[list[str]] = []
    for item in items:
        rows += [[item]] if isinstance(item, str) else _rows_of(item)
    return rows


def fills_json(fills: Sequence[Fill]) -> str:
    """Fills as the JSON list that prompts ask for."""
    return "[" + ",".join([f"[{row},{col},{value}]" for row, col, value in fills]) + "]"


def fills_terse(fills: Sequence[Fill], size: int) -> str:
    """Fills as digits, `123,412`; as JSON if there are none, or n has two digits."""
    if not fills or size > MAX_TERSE_SIZE:
        return fills_json(fills)
    return ",".join([f"{row}{col}{value}" for row, col, value in fills])


def puzzle_text(puzzle: Puzzle) -> str:
    """The clues as symbols, `.` for an empty cell, and drawn rules behind them: one line."""
    return " ".join([cells_text(puzzle.clues), *rules_lines(puzzle.size, puzzle.rules)])


def cells_text(cells: bytes) -> str:
    """The values of a grid as one line of symbols, `.` for an empty cell."""
    return "".join("." if value == 0 else SYMBOLS[value] for value in cells)


def read_puzzles(text: str) -> list[Puzzle]:
    """Read a file of puzzles: one per line; blank lines and lines that begin with `;` are skipped.

    Raises:
        LevelFormatError: As `read_puzzle`, or if the file has no puzzle.
        UnreachableRequest: If a puzzle is too hard to certify.
    """
    return read_lines(text, read_puzzle, "one puzzle per line", lambda line: line.startswith(";"))


def read_puzzle(text: str, first_line: int = 1) -> Puzzle:
    """Read one puzzle and certify that it has exactly one solution.

    Args:
        text: n * n symbols in one line, or n lines of n symbols: `1`-`9`, then `A`-`G`; `.` or `0`
            for an empty cell. Spaces are not allowed within lines. Drawn rules may follow, as
            `rules_lines` writes them, on the same line or on others.
        first_line: Number of the first line of `text`, for errors.

    Raises:
        LevelFormatError: If a symbol is unknown, the shape or a rule is wrong, clues contradict
            each other, no cell is empty, or there is not exactly one solution; it names line and
            column.
        UnreachableRequest: If the number of solutions could not be decided within bounds.
    """
    at = found.start() if (found := _RULES.search(text)) else len(text)
    lines = [line.rstrip() for line in text[:at].rstrip().split("\n")]
    skipped = next((index for index, line in enumerate(lines) if line), 0)
    lines, first_line = lines[skipped:], first_line + skipped
    size = _size_of(lines, first_line)
    clues = bytearray()
    places: list[tuple[int, int]] = []
    for number, line in enumerate(lines, first_line):
        for column, symbol in enumerate(line, 1):
            value = 0 if symbol == "." else SYMBOLS.find(symbol.upper())
            if not 0 <= value <= size:
                allowed = f"{SYMBOLS[1]}-{SYMBOLS[size]} and . or 0 for an empty cell"
                raise LevelFormatError(f"unknown symbol {symbol!r}", number, column, allowed)
            clues.append(value)
            places.append((number, column))
    rules = read_rules(size, text[at:], places[-1][0])
    _check_clues(size, bytes(clues), places, boxes_of(size, rules))
    grid = bytes(clues)
    ways = solutions(size, grid, rules)
    if len(ways) != 1:
        problem = "the puzzle has no solution" if not ways else "the puzzle has several solutions"
        raise LevelFormatError(problem, first_line, allowed="exactly one solution")
    return Puzzle(size, grid, ways[0], not rules and singles_suffice(size, grid), rules)


def _size_of(lines: list[str], first_line: int) -> int:
    allowed = "n * n symbols in one line, or n lines of n symbols, with n one of 4, 6, 9, 16"
    if len(lines) == 1:
        for size in BOX_SHAPES:
            if len(lines[0]) == size * size:
                return size
        raise LevelFormatError(f"{len(lines[0])} symbols in one line", first_line, 0, allowed)
    size = len(lines)
    if size not in BOX_SHAPES:
        raise LevelFormatError(f"{size} lines", first_line, 0, allowed)
    for number, line in enumerate(lines, first_line):
        if len(line) != size:
            column = min(len(line), size) + 1
            raise LevelFormatError(f"{len(line)} symbols in this line", number, column, allowed)
    return size


def _check_clues(
    size: int, clues: bytes, places: list[tuple[int, int]], boxes: tuple[int, ...]
) -> None:
    if 0 not in clues:
        raise LevelFormatError("no cell is empty", places[0][0], 0, "at least one empty cell")
    for cell, value in enumerate(clues):
        for other in range(cell):
            if value and clues[other] == value:
                unit = _shared_unit(size, boxes, cell, other)
                if unit:
                    problem = f"the clue {SYMBOLS[value]} stands twice in a {unit}"
                    raise LevelFormatError(problem, *places[cell], "clues that agree")


def _shared_unit(size: int, boxes: tuple[int, ...], cell: int, other: int) -> str:
    if cell // size == other // size:
        return "row"
    if cell % size == other % size:
        return "column"
    return "box" if boxes[cell] == boxes[other] else ""


CELL_PIXELS = 32
_LINE, _INK = (190, 190, 186), (40, 44, 52)
_RIGHT, _WRONG = (40, 104, 196), (196, 60, 48)
_CAGE, _INSET, _DASH = (126, 84, 160), 3, 3


def draw_image(puzzle: Puzzle, grid: Grid) -> npt.NDArray[np.uint8]:
    """A picture of the grid: clues dark, fills blue, fills that block the solution red.

    Drawn rules: borders of boxes are thick, cages are dashed and have their sum in a corner, and
    diagonals are sand.

    Returns:
        uint8 of shape [n * 32 + 3, n * 32 + 3, 3].

    Raises:
        MissingDependency: If Pillow is not installed.
    """
    import numpy as np

    pixels = CELL_PIXELS
    size = puzzle.size
    side = size * pixels + 3
    image, pen = blank_picture(side, side)
    from PIL import ImageFont  # there is Pillow, or the picture would have failed

    font = ImageFont.load_default(size=18)
    rules = puzzle.rules
    if rules and rules.diagonals:
        for place in range(size):
            for col in (place, size - 1 - place):
                x, y = col * pixels + 1, place * pixels + 1
                pen.rectangle((x, y, x + pixels, y + pixels), fill=SAND)
    pen.rectangle((0, 0, side - 1, side - 1), outline=_INK, width=3)
    for cell in range(size * size):
        x, y = cell % size * pixels + 1, cell // size * pixels + 1
        for other in neighbours(size, cell):
            if other > cell:
                corner = (x + pixels, y) if other == cell + 1 else (x, y + pixels)
                is_border = puzzle.boxes[other] != puzzle.boxes[cell]
                line = (corner, (x + pixels, y + pixels))
                pen.line(line, fill=_INK if is_border else _LINE, width=3 if is_border else 1)
    small = ImageFont.load_default(size=9)
    for cage in rules.cages if rules else ():
        first = min(cage[1])
        corner = (first % size * pixels + 6, first // size * pixels + 4)
        pen.text(corner, str(cage[0]), fill=_CAGE, font=small)
    for cell in range(size * size):
        value = grid.cells[cell]
        if value:
            given, right = puzzle.clues[cell], puzzle.solution[cell]
            colour = _INK if given else _RIGHT if value == right else _WRONG
            centre = (cell % size * pixels + pixels / 2 + 1, cell // size * pixels + pixels / 2 + 1)
            pen.text(centre, str(value), fill=colour, font=font, anchor="mm")
    picture = np.array(image)
    for _, cells in rules.cages if rules else ():
        picture[_dashes(size, cells)] = _CAGE
    return picture


def _dashes(size: int, cells: Sequence[int]) -> npt.NDArray[np.bool_]:
    """The pixels of a dashed line along the border of some cells, a little inside it."""
    import numpy as np

    side = size * CELL_PIXELS + 3
    inside, across = np.zeros((side, side), bool), np.add.outer(np.arange(side), np.arange(side))
    for cell in cells:
        y, x = (place * CELL_PIXELS + 1 for place in divmod(cell, size))
        below = 0 if cell + size in cells else _INSET
        right = 0 if cell + 1 in cells and (cell + 1) % size else _INSET
        above = 0 if cell - size in cells else _INSET
        left = 0 if cell - 1 in cells and cell % size else _INSET
        inside[y + above : y + CELL_PIXELS + 1 - below, x + left : x + CELL_PIXELS + 1 - right] = (
            True
        )
    deep = inside.copy()
    for axis in (0, 1):
        for step in (-1, 1):
            deep &= np.roll(inside, step, axis)
    return inside & ~deep & (across // _DASH % 2 == 0)


def fills_of(
    puzzle: Puzzle, grid: Grid, policy: str, max_moves: int, rng: random.Random
) -> list[Fill]:
    """The fills of a policy; `max_moves` is not used, as there is no limit of fills.

    Oracle writes all that is missing, and corrects what is wrong; greedy the naked and hidden
    singles that can be seen at once (nothing follows from them within the turn), or a guess if
    there are none; random up to n guesses that the rules allow; there-and-back half of what is
    missing, or, if something is filled in, its removal, which shows what idling returns.
    """
    if policy == "oracle":
        return _missing(puzzle, grid)
    if policy == "greedy":
        return _visible_singles(puzzle, grid) or _guesses(puzzle, grid, 1, rng)
    if policy == "there-and-back":
        return _clears(puzzle, grid) or _missing(puzzle, grid)[: puzzle.clues.count(0) // 2]
    return _guesses(puzzle, grid, puzzle.size, rng)


def _fill(size: int, cell: int, value: int) -> Fill:
    return (*divmod(cell, size), value)


def _missing(puzzle: Puzzle, grid: Grid) -> list[Fill]:
    """The fills that solve the puzzle; wrong values are cleared first."""
    size = puzzle.size
    values = grid.cells
    wrong = [c for c, value in enumerate(values) if value and value != puzzle.solution[c]]
    todo = [c for c, value in enumerate(values) if value != puzzle.solution[c]]
    clears = [_fill(size, cell, 0) for cell in wrong]
    return clears + [_fill(size, cell, puzzle.solution[cell]) for cell in todo]


def _clears(puzzle: Puzzle, grid: Grid) -> list[Fill]:
    """The fills that clear every cell but the clues."""
    size = puzzle.size
    return [
        _fill(size, cell, 0)
        for cell in range(size * size)
        if not puzzle.clues[cell] and grid.cells[cell]
    ]


def _visible_singles(puzzle: Puzzle, grid: Grid) -> list[Fill]:
    size = puzzle.size
    boxes = puzzle.boxes
    options = {cell: candidates(puzzle, grid, cell) for cell in range(size * size)}
    found = {cell: values[0] for cell, values in options.items() if len(values) == 1}
    places: dict[tuple[str, int, int], list[int]] = {}
    for cell, values in options.items():
        for value in values:
            for unit in (("row", cell // size), ("column", cell % size), ("box", boxes[cell])):
                places.setdefault((*unit, value), []).append(cell)
    for (_, _, value), cells in places.items():
        if len(cells) == 1:
            found.setdefault(cells[0], value)
    return [_fill(size, cell, value) for cell, value in sorted(found.items())]


def _guesses(puzzle: Puzzle, grid: Grid, count: int, rng: random.Random) -> list[Fill]:
    size = puzzle.size
    options = {cell: candidates(puzzle, grid, cell) for cell in range(size * size)}
    cells = [cell for cell, values in options.items() if values]
    chosen = rng.sample(cells, min(count, len(cells)))
    return [_fill(size, cell, rng.choice(options[cell])) for cell in chosen]


@cache
def words(size: int, is_drawn: bool = False) -> Words:
    """The words of prompts about grids of a size, with or without drawn rules."""
    box_rows, box_cols = BOX_SHAPES[size]
    parts = packaged("pettingllms_envs.sudoku")["parts"]
    return words_in(
        "pettingllms_envs.sudoku",
        "drawn" if is_drawn else "",
        size=size,
        box_rows=box_rows,
        box_cols=box_cols,
        taken=TAKEN_DRAWN if is_drawn else TAKEN,
        **{name: text if is_drawn else "" for name, text in parts.items()},
    )


def own_fills(clues: bytes, cells: bytes) -> str:
    """The fills that a grid holds besides the clues, as a JSON list."""
    values_of, texts = _blanks(clues)
    return "[" + "".join(map(getitem, texts, values_of(cells)))[:-1] + "]"


# Agents of a turn and branches see the same grid.
@lru_cache(maxsize=512)
def _grid_and_fills(clues: bytes, cells: bytes) -> str:
    return f"{text_of(cells)}\nFilled in by your team so far: {own_fills(clues, cells)}"


@lru_cache(maxsize=512)
def _blanks(clues: bytes) -> tuple[Callable[[bytes], tuple[int, ...]], list[list[str]]]:
    """What reads the values of all cells that are not clues, and the texts of their fills."""
    texts = _fill_texts(isqrt(len(clues)))
    cells = [cell for cell, clue in enumerate(clues) if not clue]
    # One cell more: for a single cell it would give no tuple.
    return itemgetter(*cells, -1), [texts[cell] for cell in cells]


@cache
def _fill_texts(size: int) -> list[list[str]]:
    """Every fill of every cell as text that ends with a comma; that of value 0 is empty."""
    return [
        ["", *(f"[{row},{col},{value}]," for value in range(1, size + 1))]
        for row in range(size)
        for col in range(size)
    ]


def _scene(state: PlanningState, turn: int) -> str:
    """The grid, and below it the lines on what the team did before this turn."""
    puzzle, grid, _, _, _, _, _, refused, unchanged = state
    cells, _, _, num_right, num_wrong = grid
    has_fills = turn and (num_right or num_wrong)
    text = _grid_and_fills(puzzle.clues, cells) if has_fills else text_of(cells)
    if refused:
        text += f"\nRefused last turn: {refused}"
    return text + history_text(unchanged) if unchanged else text


def _candidates_compact(puzzle: Puzzle, grid: Grid) -> str:
    size = puzzle.size
    cells = [cell for cell, value in enumerate(grid.cells) if not value]
    found = [[*divmod(cell, size), *candidates(puzzle, grid, cell)] for cell in cells]
    if size > MAX_TERSE_SIZE:
        return json.dumps(found, separators=(",", ":"))
    return ",".join("".join(map(str, numbers)) for numbers in found)


FIELDS: dict[str, PromptField[PlanningState]] = {
    "scene": PromptField(
        "`grid` and, below it, `history`", lambda state, agent, turn: _scene(state, turn)
    ),
    "grid": field("the grid, one row per line, 0 for empty cells", lambda puzzle, grid: grid.text),
    "grid_flat": field(
        "the grid as one line of symbols, one for each cell: 1-9, then A-G, . for empty cells",
        lambda puzzle, grid: cells_text(grid.cells),
    ),
    "candidates_compact": field(
        "row, column and the values that the rules allow there, for every empty cell, as "
        "digits, if n has one: 113,1224",
        _candidates_compact,
    ),
    "history": PromptField(
        "from the second turn on, lines on the team's fills, on refused ones and on a last "
        "turn that changed nothing; begins with a line break unless it is empty",
        lambda state, agent, turn: _scene(state, turn).removeprefix(state.position.text),
    ),
    "own_fills": field(
        "the team's fills in the grid", lambda puzzle, grid: own_fills(puzzle.clues, grid.cells)
    ),
    "refused": of_state("the fills refused last turn", lambda state: state.refused or "none"),
    "proposal": of_state(
        "the fills proposed this turn",
        lambda state: bounded(fills_json(state.proposal), SHOWN_CHARS),
    ),
    "proposal_compact": of_state(
        "the same as digits, if n has one: 123,412",
        lambda state: bounded(fills_terse(state.proposal, state.level.size), SHOWN_CHARS),
    ),
    "rules": field(
        "a line for each rule that is drawn with the puzzle; empty without",
        lambda puzzle, grid: "\n".join(rules_lines(puzzle.size, puzzle.rules)),
    ),
    "size": field("n", lambda puzzle, grid: puzzle.size),
}


def board(puzzle: Puzzle, grid: Grid) -> str:
    """The grid and, below it, the rules that are drawn with the puzzle."""
    return "\n".join([grid.text, *rules_lines(puzzle.size, puzzle.rules)])


@page(size=9)
class SudokuEnv(PlanningEnv):
    """Complete a Sudoku that has exactly one solution.

    ## Task

    An n x n grid, n one of 4, 6, 9, 16, with boxes of 2x2, 2x3, 3x3, 4x4 cells, some values
    given. Every row, column and box must hold each of 1..n once. The task is solved when the
    grid is complete, valid and has all given values in place, and only then.

    With `rules`, a puzzle has rules of its own, drawn with it: cages, which are groups of cells
    whose values differ and add up to a sum; boxes of irregular shape; both long diagonals. None
    of them can be left out, and a program that knows plain Sudoku alone solves none of them.

    ## Observation

    The rules, the turn and the grid as it is now (0 is an empty cell); from the second turn on
    the team's own fills, the fills refused last turn, and why it changed nothing, if so; for
    the planner also what its team-mate did this turn. `prompt_fields` lists the placeholders of
    prompts.

    ## Action

    Planner and proposer: a list of fills, `#### [[1,2,3],[4,1,2]]`, each [row, column, value]
    with rows and columns from 0; value 0 clears a cell. Or a whole grid as a list of rows; it
    clears the team's old fills first. Also read are a list without `####` if it is the only one
    and ends the text, numbers without commas, and up to n = 9 fills of digits alone (`123,412`) in
    a text of nothing else. Fills are written in order. Refused are: cells
    and values outside the grid, given cells, and values that are already in the row, column
    or box, or in the cage or on the diagonal. Sums of cages are not checked. A wrong value that
    contradicts nothing is written; it can be cleared or replaced. A list of more than 2 n * n fills
    is unreadable.
    Tool: a program in a closed code block; it reads the grid from stdin,
    below it a line for each drawn rule (`boxes [[1,1,2,2],...]`, `cages [[7,[1,1],[1,2]],...]`,
    `diagonals`), and prints fills or a grid.

    ## Reward

    The potential is 0.1 * (right fills - wrong fills) / E with E the empty cells of the puzzle. M
    is n * n.

    ## Info keys

    - `num_fills`: fills in the action, cells of a grid that repeat given values not counted.
    - `num_refused`: how many of them were refused.
    - `num_empty`: empty cells of the grid after the action.
    - `solvable`: whether the grid can still be completed without clearing a cell; never shown
      to agents.
    - `proposed`: (tool, proposer) the fills proposed to the planner.

    ## Arguments

    - `size`: n, 4, 6, 9 or 16.
    - `rules`: how many rules are drawn with a puzzle, for n 6 and 9: 1 cages, 2 irregular boxes
      too, 3 diagonals too.
    - `clues`: number of given values; None: 6, 14, 36, 150 for the four sizes, n with drawn rules.
      A number for which no puzzle is found within bounds is refused with `UnreachableRequest`.
    - `singles_only`: whether naked and hidden singles suffice to solve, or do not suffice; drawn
      rules ask for more in any case.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a puzzle's content up
      to renaming of values, permutation of rows, columns, bands and stacks, and transposition;
      with drawn rules by that of its solution, boxes and diagonals, up to renaming, rotation and
      reflection.
    - `levels`: puzzles of `size` to draw from instead of generating: a path or pattern of files
      with one puzzle per line, or a list of puzzle texts (`1`-`9`, `A`-`G`, `.` for an empty
      cell; drawn rules behind it); `split` does not apply to them.
      `reset(options={"level": text})` sets one episode's puzzle, of `size` too.

    ## Source

    Sudoku of Stronger-MAS (arXiv 2510.11062). Changed: every puzzle has exactly one solution,
    given values cannot be overwritten, wrong values lower the potential, splits are by content.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "sudoku_v0",
        "render_modes": ["ansi", "human", "rgb_array"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "greedy", "random", "there-and-back")
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"size": 4},
            "paper": "easy",
            "medium": {"size": 6, "clues": 14},
            "hard": {"size": 9, "clues": 36},
            "expert": {"size": 9, "clues": 32, "singles_only": False},
            "extreme": {"size": 9, "rules": 3, "clues": 12},
        },
        lambda k: {"size": 9, "rules": 3, "clues": 28 - 4 * k},
        last=7,
        toys={"easy": 43},
    )
    # Backtracking, the cell with the fewest candidates first; drawn rules are not read.
    fixed_program: ClassVar[str] = packaged_text("pettingllms_envs.sudoku", "program.txt")
    words = words(4)
    own_fields = FIELDS
    default_limits = (4, 16)
    least_potential = -PROGRESS
    _no_answer = FillAnswer(())
    _draw = staticmethod(generate_of_split)
    _start = staticmethod(start)
    _read_level = staticmethod(read_puzzle)
    _read_level_file = staticmethod(read_puzzles)
    _attempt = staticmethod(attempt)
    _plan = staticmethod(fills_of)
    _write = staticmethod(fills_json)
    _board = staticmethod(board)

    @classmethod
    def _facts(cls, state: PlanningState, trial: Trial, is_done: bool) -> dict[str, Any]:
        fills, refused = trial.about
        grid = trial.position if is_done else state.position
        info = {
            "num_fills": len(fills),
            "num_refused": len(refused),
            "num_empty": grid.num_empty,
            "solvable": grid.num_wrong == 0,
        }
        return info if is_done else info | {"proposed": fills}

    @classmethod
    def _identity(cls, puzzle: Puzzle) -> str:
        return canonical(puzzle.size, puzzle.clues, puzzle.rules).hex()

    @classmethod
    def _reader(cls, puzzle: Puzzle) -> ListReader[FillAnswer]:
        return reader(puzzle.size)

    @staticmethod
    def _write_terse(puzzle: Puzzle, fills: Sequence[Fill]) -> str:
        return fills_terse(fills, puzzle.size)

    @staticmethod
    def _length(puzzle: Puzzle) -> int:
        return 0

    def __init__(
        self,
        *,
        size: int = 4,
        rules: int = 0,
        clues: int | None = None,
        singles_only: bool = True,
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        **shell: Unpack[GameArguments],
    ) -> None:
        size = plain(size)
        check_choice("size", size, DEFAULT_CLUES)
        singles_only = check_flag("singles_only", singles_only)
        num_rules = check_num_rules(size, rules)
        default = size if num_rules else DEFAULT_CLUES[size]
        num_clues = check_num_clues(size, default if clues is None else clues, num_rules)
        check_split(split)
        super().__init__(
            words=words(size, is_drawn=num_rules > 0),
            fields=FIELDS,
            moves_per_turn=size * size,  # refused fills that cost as much as an empty answer
            **shell,
        )
        self.size = size
        self._request = Request(size, num_clues, singles_only, split, num_rules)
        self.board = f"{size}x{size}"
        self._read_levels(levels)

    def _fitting(self, argument: str, level: Puzzle) -> Puzzle:
        """The puzzle itself; refuses one from outside that the prompts do not describe."""
        if level.size != self.size:
            given, allowed = (f"{n}x{n}" for n in (level.size, self.size))
            fix = f"Pass size={level.size} to play it."
            raise InvalidArgument(argument, f"a {given} puzzle", f"{allowed} puzzles", fix)
        if level.rules and not self._request.num_rules:
            fix = "Make the environment with rules=1 or more: its prompts explain them."
            raise InvalidArgument(argument, "a puzzle with drawn rules", "plain puzzles", fix)
        return level

    def _rgb_array(self, state: PlanningState) -> Any:
        return draw_image(state.level, state.position)
