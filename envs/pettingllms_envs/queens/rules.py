"""The rules: pieces, one per row, moved within their rows; all solutions; levels by chance."""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import combinations
from operator import ne
from typing import NamedTuple, TypeAlias

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of

Columns: TypeAlias = tuple[int, ...]
"""Column of the piece of each row, from 0."""

Step: TypeAlias = tuple[int, int, int]
"""(a, b, n): up to n steps in one direction, each of a rows and b columns or of b rows and a
columns; n = 0: any number of them."""

Kind: TypeAlias = tuple[Step, ...]
"""How a piece attacks."""

MIN_SIZE, MAX_SIZE = 4, 16
KINDS = "ABCDE"
"""Letters of the kinds of pieces beside queens; a level has the first few of them."""
QUEEN: Kind = ((0, 1, 0), (1, 1, 0))
MAX_GOALS = 1_000
"""Levels have at most so many solutions, so that all of them can be found."""


class Level(NamedTuple):
    """A board to repair."""

    start: Columns
    """Row -> column of its piece, at the start."""
    fixed: tuple[bool, ...]
    """Whether the piece of a row must stay where it is."""
    shortest: int
    """Minimum number of pieces that have to be moved."""
    kinds: tuple[Kind, ...] = ()
    """The kinds of pieces beside queens: A, B, ..."""
    pieces: str = ""
    """Letter of the piece of each row, Q for a queen; empty: queens alone."""

    ADDED = ("kinds", "pieces")


class Move(NamedTuple):
    """The piece of a row goes to a column."""

    row: int
    """Row of the piece, from 0."""
    col: int
    """Column to which it goes, from 0."""


Reach: TypeAlias = frozenset[tuple[int, int]]
"""What a piece attacks: cells that are (rows, columns) away, rows >= 1 and columns >= 0."""


@lru_cache(maxsize=1024)
def reach(kind: Kind, size: int) -> Reach:
    """What a kind of piece attacks.

    Pieces attack alike in all directions, and nothing stands in their way. A row holds one piece,
    so that attacks along rows do not matter.
    """
    found: set[tuple[int, int]] = set()
    for a, b, most in kind:
        for times in range(1, (most or size) + 1):
            found |= {(a * times, b * times), (b * times, a * times)}
    return frozenset((rows, cols) for rows, cols in found if 0 < rows < size > cols)


def reaches(level: Level) -> list[Reach]:
    """What the piece of each row attacks."""
    size = len(level.start)
    of = {letter: reach(kind, size) for letter, kind in zip(KINDS, level.kinds, strict=False)}
    of["Q"] = reach(QUEEN, size)
    return [of[letter] for letter in level.pieces or "Q" * size]


def attacked(level: Level) -> list[list[list[int]]]:
    """[row][column][other row] -> bits of the columns that exclude each other."""
    return _attacked(level.kinds, level.pieces, len(level.start))


@lru_cache(maxsize=1024)
def _attacked(kinds: tuple[Kind, ...], pieces: str, size: int) -> list[list[list[int]]]:
    # Made once for all boards of the same pieces: searches and scores only look bits up.
    of = reaches(Level((0,) * size, (), 0, kinds, pieces))
    bits = [[[0] * size for _ in range(size)] for _ in range(size)]
    for low, high in combinations(range(size), 2):
        for rows, cols in of[low] | of[high]:
            for col in range(size if rows == high - low else 0):
                sides = (1 << col + cols) | (1 << col - cols if col >= cols else 0)
                bits[low][col][high] |= sides
                bits[high][col][low] |= sides
    return bits


@lru_cache(maxsize=4096)
def goals(level: Level) -> tuple[Columns, ...]:
    """The solutions that leave the fixed pieces where they are, in order.

    The search stops behind `MAX_GOALS`; levels with more of them are none.
    """
    size = len(level.start)
    bits, found = attacked(level), list[Columns]()
    columns = [0] * size

    def extend(open_rows: list[int], allowed: list[int]) -> None:
        if not open_rows:
            found.append(tuple(columns))
            return
        # The narrowest row first keeps the tree small; sorting below hides the order from callers.
        row = min(open_rows, key=lambda one: allowed[one].bit_count())
        rest = [one for one in open_rows if one != row]
        for col in range(size):
            # One more than the limit is enough to know that there are too many.
            if allowed[row] >> col & 1 and len(found) <= MAX_GOALS:
                columns[row] = col
                out = zip(allowed, bits[row][col], strict=True)
                extend(rest, [mask & ~attack for mask, attack in out])

    every = (1 << size) - 1
    pairs = zip(level.start, level.fixed, strict=True)
    extend(list(range(size)), [1 << col if is_fixed else every for col, is_fixed in pairs])
    return tuple(sorted(found))


@lru_cache(maxsize=16)
def solutions(size: int) -> tuple[Columns, ...]:
    """All placements of `size` queens that do not attack each other, in order."""
    return goals(Level((0,) * size, (False,) * size, 0))


def wrong_rows(columns: Columns, goal: Columns) -> list[int]:
    """The rows whose pieces are not where a solution has them."""
    return [row for row, col in enumerate(columns) if goal[row] != col]


@lru_cache(maxsize=16384)
def nearest_goal(level: Level, columns: Columns) -> Columns:
    """The solution that needs the fewest moves; the first of several.

    A piece moves to any column of its row in one move, and no other piece is in its way. The
    minimum number of moves to a solution is therefore the number of rows in which it differs, and
    the minimum over all solutions is exact.
    """
    # `map(ne, ...)` counts rows in C: this runs for every board that a policy looks at.
    return min(goals(level), key=lambda goal: sum(map(ne, columns, goal)))


@lru_cache(maxsize=16384)
def distance(level: Level, columns: Columns) -> int:
    """The minimum number of moves to a solution."""
    return len(wrong_rows(columns, nearest_goal(level, columns)))


def is_solved(level: Level, columns: Columns) -> bool:
    """Whether no piece attacks another; fixed pieces never leave their places."""
    return not distance(level, columns)


def after(level: Level, columns: Columns, move: Move) -> Columns | None:
    """The board after a move; None if the piece is fixed or would stay where it is."""
    row, col = move
    if not (0 <= row < len(columns) and 0 <= col < len(columns)):
        return None
    if level.fixed[row] or columns[row] == col:
        return None
    return (*columns[:row], col, *columns[row + 1 :])


def legal_moves(level: Level, columns: Columns) -> list[Move]:
    """All legal moves, row by row."""
    size = len(columns)
    every = (Move(row, col) for row in range(size) for col in range(size))
    return [move for move in every if after(level, columns, move) is not None]


@lru_cache(maxsize=16384)
def attacks(level: Level, columns: Columns) -> int:
    """The number of pairs of pieces of which one attacks the other."""
    bits, pairs = attacked(level), combinations(range(len(columns)), 2)
    return sum(bits[low][columns[low]][high] >> columns[high] & 1 for low, high in pairs)


def canonical_form(level: Level) -> bytes:
    """What identifies the content of a level, equal for its mirror images.

    Pieces move along rows, so the symmetries of the rules are the reflections in both directions
    and their product, not the quarter turns. Pieces are told apart by what they attack on the
    board, not by their letters.
    """
    size = len(level.start)
    last, queens = size - 1, reach(QUEEN, size)
    # A kind with the reach of a queen is one, whatever its letter is.
    names = ["" if one == queens else str(sorted(one)) for one in reaches(level)]
    rows = tuple(zip(level.start, level.fixed, names, strict=True))
    mirrored = tuple((last - col, is_fixed, name) for col, is_fixed, name in rows)
    smallest = min(rows, mirrored, rows[::-1], mirrored[::-1])
    return " ".join(f"{col}{'!' * is_fixed}{name}" for col, is_fixed, name in smallest).encode()


MIN_MOVES = 2
"""Default of `min_moves`: shorter levels are solved by luck."""
ATTEMPTS = 2_000
STARTS = 30
MAX_LISTED = 10
"""Largest board of queens whose solutions are all listed, to draw one of them."""
LEAPS = ((1, 2), (1, 3), (2, 3), (1, 4), (2, 5))


class Request(NamedTuple):
    """Properties of the levels to generate; see the arguments of `QueensEnv`."""

    size: int
    fixed: int
    min_moves: int
    max_moves: int
    split: str | None
    pieces: int = 0

    def checked(self) -> Request:
        """The request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If the values contradict one another.
        """
        size = check_whole("size", self.size, MIN_SIZE, MAX_SIZE)
        plain = self._replace(
            size=size,
            fixed=check_whole("fixed", self.fixed, 1, size - 1),
            min_moves=check_whole("min_moves", self.min_moves, 1),
            max_moves=check_whole("max_moves", self.max_moves, 1),
            pieces=check_whole("pieces", self.pieces, 0, min(size, len(KINDS))),
        )
        check_split(self.split)
        if plain.min_moves > min(plain.max_moves, size - plain.fixed):
            raise UnreachableRequest(
                f"no level of size={size} with fixed={plain.fixed} needs at least "
                f"min_moves={plain.min_moves} and at most max_moves={plain.max_moves} moves; there "
                f"are {size - plain.fixed} pieces to move, and max_moves is max_turns * "
                "moves_per_turn unless it is given"
            )
        return plain


def generate(rng: random.Random, request: Request) -> Level:
    """A random level with the requested properties.

    Some pieces of a random solution are fixed, so that there is a solution; the others are put
    into random columns. The certificate is the enumeration of all solutions.

    Raises:
        UnreachableRequest: If 2,000 boards held no such level.
    """
    size = request.size
    for _ in range(ATTEMPTS):
        board = _solved(rng, request)
        if board is None:
            continue
        kept = set(rng.sample(range(size), request.fixed))
        board = board._replace(fixed=tuple(row in kept for row in range(size)))
        # What is not listed whole gives no minimum: such a board could not be certified.
        if len(goals(board)) > MAX_GOALS:
            continue
        # Drawn pieces take long to place: their boards are tried with several starts.
        for _ in range(STARTS if request.pieces else 1):
            columns = (
                board.start[row] if row in kept else rng.randrange(size) for row in range(size)
            )
            start = tuple(columns)
            level = board._replace(start=start, shortest=distance(board, start))
            if not request.min_moves <= level.shortest <= request.max_moves:
                continue
            # Splits go by content: the same board never comes with another seed in another split.
            if request.split is None or split_of(canonical_form(level)) == request.split:
                return level
    raise UnreachableRequest(
        f"{ATTEMPTS} random boards held no level with size={size}, fixed={request.fixed}, "
        f"pieces={request.pieces}, min_moves={request.min_moves}, max_moves={request.max_moves}, "
        f"split={request.split!r}; lower min_moves, raise max_moves, or fix other numbers of pieces"
    )


def _solved(rng: random.Random, request: Request) -> Level | None:
    """A board on which no piece attacks another; None if chance did not find one soon."""
    size = request.size
    none = (False,) * size
    # Few enough solutions to choose among all of them, each as likely as the others.
    if not request.pieces and size <= MAX_LISTED:
        return Level(rng.choice(solutions(size)), none, 0)
    kinds = tuple(_kind(rng) for _ in range(request.pieces))
    letters = KINDS[: request.pieces]
    others = rng.choices(letters + "Q", k=size - len(letters))
    level = Level((0,) * size, none, 0, kinds, "".join(rng.sample([*letters, *others], size)))
    # An empty text stands for queens alone, so that equal boards are equal levels.
    if not kinds:
        level = level._replace(pieces="")
    columns = _random_solution(rng, level)
    # Two letters that attack alike would be one kind under two names.
    alike = len(set(reaches(level))) < len(kinds) + ("Q" in level.pieces)
    return None if columns is None or alike else level._replace(start=columns)


def _kind(rng: random.Random) -> Kind:
    """A kind of piece: a line or two, and a leap that no queen makes."""
    lines = rng.sample([(0, 1), (1, 1)], rng.choice((1, 1, 2)))
    leap = rng.choice(LEAPS)
    # 0 is a queen's unlimited reach; the others are new to a program that knows queens.
    reached = ((*step, rng.choice((0, 2, 3, 4))) for step in lines)
    return (*reached, (*leap, rng.choice((1, 1, 2, 0))))


def _random_solution(rng: random.Random, level: Level) -> Columns | None:
    """A random placement without attacks; None where chance ends in a blind alley."""
    bits, size = attacked(level), len(level.start)
    # The row with the fewest free columns first: blind alleys show before much is placed.
    columns, allowed = [-1] * size, [(1 << size) - 1] * size
    while (row := min(_open(columns), key=lambda one: allowed[one].bit_count(), default=-1)) >= 0:
        free = [col for col in range(size) if allowed[row] >> col & 1]
        if not free:
            return None
        columns[row] = rng.choice(free)
        allowed = [a & ~b for a, b in zip(allowed, bits[row][columns[row]], strict=True)]
    return tuple(columns)


def _open(columns: list[int]) -> list[int]:
    return [row for row, col in enumerate(columns) if col < 0]
