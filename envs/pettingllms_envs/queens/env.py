"""`QueensEnv`: the problem of the queens as a game with proposals, its texts and levels as text.

Symbols: `Q` a queen, `F` a fixed queen, `A` to `E` pieces of other kinds, `a` to `e` the same if
fixed, `.` an empty cell. A line above the board says how each other kind attacks: `A 0,1*3 1,2`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Unpack, cast

from pettingllms.errors import InvalidArgument, LevelFormatError
from pettingllms.files import packaged_text
from pettingllms.hooks import Difficulty
from pettingllms.parsing import Item, one_line
from pettingllms.prompts import PromptField
from pettingllms.types import ParseError
from pettingllms_envs.grid import first_line, labelled, parse_rows
from pettingllms_envs.level_files import read_blocks
from pettingllms_envs.planning.env import (
    ExactEnv,
    GameArguments,
    PlanningState,
    field,
    page,
    pair_reader,
    words_in,
)
from pettingllms_envs.queens import rules
from pettingllms_envs.queens.rules import (
    KINDS,
    MAX_GOALS,
    MAX_SIZE,
    MIN_MOVES,
    MIN_SIZE,
    QUEEN,
    Columns,
    Kind,
    Level,
    Move,
    Request,
    attacks,
    canonical_form,
    distance,
    generate,
    goals,
)

_NUMBER = re.compile(r"[0-9]{1,4}")
_HEAD = re.compile(r"\s*([A-E])((?: [0-9],[1-9](?:\*[1-9]?)?)+)\s*")
_STEP = re.compile(r"([0-9]),([1-9])(\*?)([1-9]?)")
_FORMAT = "rows of ., with one piece in each: Q, F, or a letter with a line such as A 0,1*3 1,2"
_SYMBOLS = ".QF" + KINDS + KINDS.lower()


def board_text(level: Level, columns: Columns) -> str:
    """The board in the format that `parse_level` reads."""
    size = len(columns)
    pairs = zip(_symbols(level), columns, strict=True)
    rows = ["." * col + symbol + "." * (size - 1 - col) for symbol, col in pairs]
    return "\n".join([*_kind_lines(level), *rows])


def _symbols(level: Level) -> list[str]:
    """The symbol of the piece of each row."""
    letters = level.pieces or "Q" * len(level.fixed)
    fixed = ["F" if letter == "Q" else letter.lower() for letter in letters]
    return [
        (free, still)[is_fixed]
        for free, still, is_fixed in zip(letters, fixed, level.fixed, strict=True)
    ]


def _kind_lines(level: Level) -> list[str]:
    return [f"{letter} {kind_text(kind)}" for letter, kind in zip(KINDS, level.kinds, strict=False)]


def kind_text(kind: Kind) -> str:
    """How a piece attacks: `0,1* 1,2*3 1,3`, any number of steps, at most 3, or one."""
    times = {0: "*", 1: ""}
    return " ".join(f"{a},{b}{times.get(most, f'*{most}')}" for a, b, most in kind)


def labelled_board(level: Level, columns: Columns) -> str:
    """The board with row and column numbers, symbols divided by spaces."""
    size = len(columns)
    # Lines are looked up, not drawn: a prompt of a new board costs one join.
    boards = [_labelled_lines(size, symbol) for symbol in _symbols(level)]
    lines = [
        board[col][row - size] for row, (board, col) in enumerate(zip(boards, columns, strict=True))
    ]
    return "\n".join([*boards[0][0][:-size], *lines])


@cache
def _labelled_lines(size: int, symbol: str) -> list[list[str]]:
    """[column of the piece] -> the lines of a board with the piece there in each row."""
    rows = ["." * col + symbol + "." * (size - 1 - col) for col in range(size)]
    return [labelled([row] * size).text.split("\n") for row in rows]


# Agents of a turn and branches see the same board.
@lru_cache(maxsize=4096)
def scene_text(level: Level, columns: Columns) -> str:
    """What prompts show: the board, its columns and the number of pairs that attack."""
    board, pairs = labelled_board(level, columns), attacks(level, columns)
    attack = f"Columns of the {{}}, from row 0: {list(columns)}. Pairs that attack: {pairs}."
    if not level.kinds:
        return f"{board}\n{attack.format('queens')}"
    kinds = "; ".join([f"Q and F {kind_text(QUEEN)}", *_kind_lines(level)])
    return f"The kinds of pieces: {kinds}.\n{board}\n{attack.format('pieces')}"


def digits(values: Columns | tuple[bool, ...]) -> str:
    """Numbers below 16 as hexadecimal digits, nothing between them."""
    return "".join(f"{int(value):x}" for value in values)


def parse_level(text: str) -> Level:
    """Read a level, strictly.

    Raises:
        LevelFormatError: If kinds of pieces or their lines are ill-formed, it is not a square of 4
            to 16 rows, a row does not hold exactly one piece, no piece is fixed, no solution has
            the fixed pieces, or more than can be listed have them, or the board is solved. Names
            line and column.
    """
    # Only lines about kinds have a space inside. Blank ones take their place, so that errors
    # name the right line.
    lines = text.split("\n")
    heads = {at: line for at, line in enumerate(lines) if " " in line.strip()}
    kinds = [
        _parsed_kind(head, KINDS[at : at + 1], number + 1)
        for at, (number, head) in enumerate(heads.items())
    ]
    board = "\n".join("" if at in heads else line for at, line in enumerate(lines))
    rows = parse_rows(board, symbols=_SYMBOLS)
    line = first_line(board)
    size = len(rows)
    if len(rows[0]) != size or not MIN_SIZE <= size <= MAX_SIZE:
        shape = f"a board of {size}x{len(rows[0])} cells"
        raise LevelFormatError(shape, line, 0, f"squares of side {MIN_SIZE} to {MAX_SIZE}")
    for number, row in enumerate(rows, line):
        if len(row.replace(".", "")) != 1:
            raise LevelFormatError("not exactly one piece in this row", number, 0, _FORMAT)
    symbols = "".join(row.strip(".") for row in rows)
    letters = symbols.replace("F", "Q").upper()
    if (named := set(letters) - {"Q"}) != set(KINDS[: len(kinds)]):
        wrong = f"pieces {sorted(named)}, and {len(kinds)} lines about kinds"
        raise LevelFormatError(wrong, line, 0, _FORMAT)
    columns = tuple(len(row) - len(row.lstrip(".")) for row in rows)
    fixed = tuple(symbol == "F" or symbol.islower() for symbol in symbols)
    level = Level(columns, fixed, 0, tuple(kinds), letters if kinds else "")
    return level._replace(shortest=_checked_shortest(level, line))


def _parsed_kind(head: str, letter: str, line: int) -> Kind:
    found = _HEAD.fullmatch(head)
    if found is None or found[1] != letter:
        raise LevelFormatError("no line about the next kind of piece", line, 0, _FORMAT)
    steps = _STEP.findall(found[2])
    return tuple((int(a), int(b), int(most or not star)) for a, b, star, most in steps)


def _checked_shortest(level: Level, line: int) -> int:
    if not any(level.fixed):
        raise LevelFormatError("no piece is fixed", line, 0, "at least one F, or a to e")
    found = goals(level)
    if not found:
        raise LevelFormatError("no solution has the fixed pieces", line, 0, "a solvable board")
    if len(found) > MAX_GOALS:
        many = f"more than {MAX_GOALS} solutions have the fixed pieces"
        raise LevelFormatError(many, line, 0, "a board with more fixed pieces")
    shortest = distance(level, level.start)
    if not shortest:
        raise LevelFormatError("no piece attacks another", line, 0, "a board to repair")
    return shortest


def parse_levels(text: str) -> list[Level]:
    """Read a file of levels, divided by blank lines; errors name the line of the file."""
    return read_blocks(text, parse_level, _FORMAT)


def moves_json(moves: tuple[Move, ...]) -> str:
    """Moves as JSON: `[[0,3],[2,1]]`."""
    return "[" + ",".join([f"[{row},{col}]" for row, col in moves]) + "]"


def moves_terse(level: Level, moves: tuple[Move, ...]) -> str:
    """Moves as pairs of digits, `0321`; as JSON where rows have numbers of two digits."""
    if len(level.start) > 10:
        return moves_json(moves)
    return "".join(f"{row}{col}" for row, col in moves)


def _move(item: Item) -> Move | ParseError:
    numbers = [one for one in item if isinstance(one, str) and _NUMBER.fullmatch(one)]
    if isinstance(item, list) and len(item) == len(numbers) == 2:
        return Move(int(numbers[0]), int(numbers[1]))
    return ParseError(f"{one_line(str(item), 40)} is not a move [row, column]")


def _made(row: str, col: str) -> Move:
    return Move(int(row), int(col))


READER = pair_reader(r"(?:[0-9]{2})+", r"\[([0-9]{1,4}), ?([0-9]{1,4})\]", _made, _move)


WORDS, DRAWN = (words_in("pettingllms_envs.queens", variant) for variant in ("", "drawn"))
FIELDS: dict[str, PromptField[PlanningState]] = {
    "scene": field(
        "`board`, `columns` and `attacks`, as the default prompts show them", scene_text
    ),
    "board": field("the board with row and column numbers", labelled_board),
    "columns": field(
        "the column of the queen of each row, as a JSON list",
        lambda level, columns: str(list(columns)),
    ),
    "attacks": field("number of pairs of queens that attack each other", rules.attacks),
    "columns_compact": field(
        "the columns as hexadecimal digits", lambda level, columns: digits(columns)
    ),
    "fixed_compact": field(
        "a digit for each row: 1 if its queen is fixed, else 0",
        lambda level, columns: digits(level.fixed),
    ),
}


def plan(
    level: Level, columns: Columns, policy: str, num_moves: int, rng: random.Random
) -> tuple[Move, ...]:
    """The moves of a scripted policy, at most `num_moves`, fewer only if they solve the board.

    Oracle goes to the nearest solution; greedy makes one of the moves after which the fewest pairs
    attack each other (min-conflicts, Minton et al. 1992); random draws legal moves uniformly.
    """
    if policy == "oracle":
        goal = rules.nearest_goal(level, columns)
        rows = rules.wrong_rows(columns, goal)
        return tuple(Move(row, goal[row]) for row in rows[:num_moves])
    moves: list[Move] = []
    # Where it is solved nothing is left to do, and a further move could only break it.
    while len(moves) < num_moves and rules.attacks(level, columns):
        legal = rules.legal_moves(level, columns)
        if policy == "greedy":
            ranks = [rules.attacks(level, _moved(level, columns, move)) for move in legal]
            best = min(ranks)
            legal = [move for move, rank in zip(legal, ranks, strict=True) if rank == best]
        moves.append(rng.choice(legal))
        columns = _moved(level, columns, moves[-1])
    return tuple(moves)


def _moved(level: Level, columns: Columns, move: Move) -> Columns:
    return cast("Columns", rules.after(level, columns, move))


_TIGHT = {"max_turns": 3, "moves_per_turn": 3}
"""Few moves: on boards with many solutions, who tries often enough finds one."""


@page(size=6)
class QueensEnv(ExactEnv):
    """Move queens until no two of them attack each other.

    ## Task

    A square board with one queen in each row, some of them fixed. A move puts a queen into
    another column of its row. The task is solved when no two queens are in one column or on one
    diagonal. Every level can be solved within the turns of an episode.

    With `pieces`, other pieces stand among the queens, and how they attack is drawn with the level:
    lines of limited or unlimited reach, leaps, and leaps repeated. The task is solved when no piece
    attacks another; a program that knows queens alone rarely gets there.

    ## Observation

    The rules, the turn, why the last turn changed nothing if it did not, the board, the columns
    of the queens and how many pairs attack; for the planner also what its team-mate did this
    turn. `prompt_fields` lists the placeholders of prompts.

    ## Action

    Planner and proposer: a list of moves, `#### [[0,3],[2,1]]` (row, column, from 0); also read
    are a list without `####` if it is the only one and ends the text, and bare pairs of digits
    (`0321`, up to 10 rows). The first `moves_per_turn` moves are executed in order until the board
    is solved; a move of a fixed piece, off the board or to where the piece is changes nothing.
    Tool: a program in a code block. It runs in the sandbox, reads the level from stdin (rows of
    `.`, `Q`, `F`; with `pieces` also their letters, and before the board a line about each kind,
    such as `A 0,1*3 1,2`) and prints a list of moves.

    ## Reward

    d is the minimum number of moves to a solution, d0 that of the level. The potential is
    0.1 * (1 - d / d0) up to d0 and 0.01 * (d0 / d - 1) beyond it.

    ## Arguments

    - `size`: rows and columns, 4 to 16.
    - `pieces`: number of kinds of pieces beside queens, 0 to 5.
    - `fixed`: number of fixed pieces, 1 to `size` - 1; large boards need several, for levels have
      at most 1,000 solutions.
    - `min_moves`: minimum of the moves that a level needs; None: 2, or `max_moves` if that is
      less.
    - `max_moves`: maximum of the moves that a level needs; None: `max_turns * moves_per_turn`.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a level's content up
      to reflection.
    - `levels`: levels to draw from instead of generating: a path or pattern of files with levels
      divided by blank lines, or a list of level texts (as a program reads them); `split` and the
      ranges do not apply to them. `reset(options={"level": text})` sets one episode's level.

    ## Source

    The authors' code of Stronger-MAS (arXiv 2510.11062) has the eight queens beside the games of
    the paper. Changed: boards differ from level to level and have fixed queens, so that no one
    answer solves all of them; they are certified and split by content; several turns continue
    from the present board; the reward is a potential instead of 0 or 1.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "queens_v0",
        "render_modes": ["ansi", "human"],
    }
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"size": 4, "fixed": 1},
            "medium": {"size": 7, "fixed": 1, "min_moves": 5},
            "hard": {"size": 8, "fixed": 2, "min_moves": 5},
            "expert": {"size": 10, "fixed": 3, "min_moves": 6},
            "extreme": {"size": 12, "fixed": 3, "min_moves": 8, "pieces": 3, **_TIGHT},
        },
        lambda k: {"size": 4 + 2 * k, "fixed": k - 1, "min_moves": 8, "pieces": k - 2, **_TIGHT},
        last=6,
        toys={"easy": 9},
    )
    # Backtracking that leaves pieces where they are first, and takes all of them for queens.
    fixed_program: ClassVar[str] = packaged_text("pettingllms_envs.queens", "program.txt")
    words = WORDS
    own_fields = FIELDS
    default_limits = (4, 10)
    _answers = READER
    _canonical = staticmethod(canonical_form)
    _draw = staticmethod(generate)
    _read_level = staticmethod(parse_level)
    _read_level_file = staticmethod(parse_levels)
    _after = staticmethod(rules.after)
    _distance = staticmethod(rules.distance)
    _is_goal = staticmethod(rules.is_solved)
    _plan = staticmethod(plan)
    _write = staticmethod(moves_json)
    _write_terse = staticmethod(moves_terse)
    _board = staticmethod(board_text)

    def __init__(
        self,
        *,
        size: int = 8,
        fixed: int = 2,
        pieces: int = 0,
        min_moves: int | None = None,
        max_moves: int | None = None,
        moves_per_turn: int = 10,
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        **shell: Unpack[GameArguments],
    ) -> None:
        super().__init__(
            words=DRAWN if pieces else WORDS,
            fields=FIELDS,
            moves_per_turn=moves_per_turn,
            **shell,
        )
        low, high = self._range_of_moves(min_moves, max_moves, MIN_MOVES)
        self._request = Request(size, fixed, low, high, split, pieces).checked()
        self.board = f"{size}x{size}" if levels is None else "levels"
        self._read_levels(levels)

    def _fitting(self, argument: str, level: Level) -> Level:
        if level.kinds and not self._request.pieces:
            kinds = f"{len(level.kinds)} kinds of pieces beside queens"
            hint = "Make the environment with pieces=1 or more: its prompts explain them."
            raise InvalidArgument("level", kinds, "queens alone", hint)
        return super()._fitting(argument, level)
