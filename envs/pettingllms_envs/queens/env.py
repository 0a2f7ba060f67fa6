"""`QueensEnv`: the problem of the queens as a game with proposals, and the words of its prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack, cast

from pettingllms.errors import InvalidArgument
from pettingllms.hooks import Difficulty
from pettingllms.parsing import ListReader
from pettingllms.prompts import PromptField
from pettingllms_envs.planning.env import (
    DUTIES_APART,
    LIMITS,
    ExactEnv,
    GameArguments,
    PlanningState,
    Words,
    field,
    page,
)
from pettingllms_envs.queens import rules, text
from pettingllms_envs.queens.generator import MIN_MOVES, Request, generate
from pettingllms_envs.queens.rules import Columns, Level, Move, canonical_form

PROGRAM = """\
import json
import sys

rows = [line for line in sys.stdin.read().splitlines() if line and " " not in line]
size = len(rows)
now = [size - len(row.lstrip(".")) for row in rows]
still = [row.strip(".") == "F" or row.islower() for row in rows]


def place(columns):
    row = len(columns)
    if row == size:
        return columns
    stay = [now[row]]
    others = [] if still[row] else [col for col in range(size) if col != now[row]]
    for col in stay + others:
        if all(col != c and abs(col - c) != row - r for r, c in enumerate(columns)):
            found = place(columns + [col])
            if found:
                return found


print(json.dumps([[row, col] for row, col in enumerate(place([])) if col != now[row]]))
"""
"""Backtracking that leaves pieces where they are first, and takes all of them for queens."""


WORDS = Words(
    goal="Move queens until no two of them attack each other: no two in one column or diagonal",
    rules=f"""\
Rows and columns are numbered from 0; row 0 is at the top, column 0 at the left. Q is a queen, F a \
queen that is fixed, . an empty cell. There is one queen in each row. A move [row, column] puts \
the queen of a row into another column; other queens are not in its way. Fixed queens stay.
{LIMITS}""",
    user="Turn {turn} of {max_turns}.{history}\n{scene}",
    example="[[0,3],[2,1]]",
    program="""\
The program reads the board from stdin, one line per row, without spaces and without numbers. It \
prints a JSON list of moves. Its answer is the last list that it prints, such as [[0,3],[2,1]].""",
    duties=DUTIES_APART,
)
DRAWN = WORDS._replace(
    goal="Move pieces until none of them attacks another",
    rules=f"""\
Rows and columns are numbered from 0; row 0 is at the top, column 0 at the left. Q is a queen, F a \
queen that is fixed, A to E other pieces, a to e the same fixed, . an empty cell. There is one \
piece in each row. A move [row, column] puts the piece of a row into another column; other pieces \
are not in its way. Fixed pieces stay.
How a kind attacks: 1,2 is one step of 1 row and 2 columns, or of 2 rows and 1 column, in any \
direction; 1,2*3 is up to 3 such steps in the same direction, 1,2* any number of them. No piece is \
in the way of an attack.
{LIMITS}""",
    program="""\
The program reads from stdin a line for each kind of piece but queens, such as A 0,1*3 1,2, then \
the board, one line per row, without spaces and without numbers. It prints a JSON list of moves. \
Its answer is the last list that it prints, such as [[0,3],[2,1]].""",
)
"""The words where other pieces stand among the queens."""
FIELDS: dict[str, PromptField[PlanningState]] = {
    "scene": field(
        "`board`, `columns` and `attacks`, as the default prompts show them", text.scene_text
    ),
    "board": field("the board with row and column numbers", text.labelled_board),
    "columns": field(
        "the column of the queen of each row, as a JSON list",
        lambda level, columns: str(list(columns)),
    ),
    "attacks": field("number of pairs of queens that attack each other", rules.attacks),
    "columns_compact": field(
        "the columns as hexadecimal digits", lambda level, columns: text.digits(columns)
    ),
    "fixed_compact": field(
        "a digit for each row: 1 if its queen is fixed, else 0",
        lambda level, columns: text.digits(level.fixed),
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
    fixed_program: ClassVar[str] = PROGRAM
    words = WORDS
    own_fields = FIELDS
    default_limits = (4, 10)
    _draw = staticmethod(generate)
    _read_level = staticmethod(text.parse_level)
    _read_level_file = staticmethod(text.parse_levels)
    _after = staticmethod(rules.after)
    _distance = staticmethod(rules.distance)
    _is_goal = staticmethod(rules.is_solved)
    _plan = staticmethod(plan)
    _write = staticmethod(text.moves_json)
    _write_terse = staticmethod(text.moves_terse)
    _board = staticmethod(text.board_text)

    @staticmethod
    def _identity(level: Level) -> str:
        return canonical_form(level).decode()

    @staticmethod
    def _reader(level: Level) -> ListReader[tuple[Move, ...]]:
        return text.READER

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
