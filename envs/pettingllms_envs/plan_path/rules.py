"""The rules: a level, the state of an episode, what moves do, shortest paths."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pettingllms_envs.grid import (
    MOVES,
    UNREACHABLE,
    bits_of,
    canonical,
    deltas_of,
    layers,
    shortest_walk,
)
from pettingllms_envs.reward import shaped

WALL, FREE = "#", "."


class Level(NamedTuple):
    """A board with a start and a goal. Cells are numbered as `pettingllms_envs.grid` says."""

    rows: int
    cols: int
    cells: str
    """`rows` rows of `cols` symbols (`#` wall, `.` free), joined with line breaks."""
    start: int
    """Number of the cell on which the player starts."""
    goal: int
    """Number of the goal's cell."""
    shortest: int
    """Length of a shortest path from start to goal, in moves."""

    @property
    def stride(self) -> int:
        """The difference between the numbers of a cell and the cell below it."""
        return self.cols + 1

    def cell(self, row: int, col: int) -> int:
        """Return the number of a cell."""
        return row * (self.cols + 1) + col

    def is_free(self, row: int, col: int) -> bool:
        """Return whether there is such a cell and the player may be on it."""
        inside = 0 <= row < self.rows and 0 <= col < self.cols
        return inside and self.cells[self.cell(row, col)] == FREE


class Outlook(NamedTuple):
    """What rewards and infos say about a cell of the player."""

    potential: float
    """In [-0.01, 0.1]; see `shaped`."""
    distance: int
    """Moves left to the goal."""
    place: tuple[int, int]
    """Row and column."""


class Maze:
    """Tables that make steps on one level fast; derived from the level alone.

    Attributes:
        level: The level.
        free: Bit-board of the cells that can be entered.
        delta: Move -> change of the cell number.
        ground: Length (rows + 1) * stride: `.` for the cells that can be entered, something else
            for walls and for the guards beyond the board. A step beyond the top row has a negative
            number and so reads the guard row at the end.
    """

    __slots__ = ("_outlooks", "_rings", "delta", "free", "ground", "level")

    def __init__(self, level: Level) -> None:
        self.level = level
        self.delta = deltas_of(level.cols + 1)
        self.ground = level.cells + WALL * (level.cols + 2)
        self.free = bits_of([level.cells], FREE)
        self._rings = tuple(layers(self.free, 1 << level.goal, level.cols + 1))
        self._outlooks: dict[int, Outlook] = {}

    @property
    def to_goal(self) -> list[int]:
        """[(rows + 1) * stride] `distance` of every cell and guard."""
        return [self.distance(cell) for cell in range(len(self.ground))]

    def distance(self, cell: int) -> int:
        """Return the moves from a cell to the goal, `UNREACHABLE` if there is no way."""
        bit = 1 << cell
        for moves, ring in enumerate(self._rings):
            if ring & bit:
                return moves
        return UNREACHABLE

    def outlook(self, cell: int) -> Outlook:
        """Return the outlook of a cell from which the goal can be reached.

        An episode visits few cells of a board, so they are looked up one by one.
        """
        known = self._outlooks.get(cell)
        if known is None:
            distance, place = self.distance(cell), divmod(cell, self.level.cols + 1)
            known = Outlook(shaped(distance, self.level.shortest), distance, place)
            self._outlooks[cell] = known
        return known

    def step(self, position: int, move: str) -> int:
        """Return the cell after one move; an illegal move leads nowhere."""
        target = position + self.delta[move]
        return target if self.ground[target] == FREE else position

    def is_open(self, position: int, move: str) -> bool:
        """Return whether a move from a free cell is legal."""
        return self.ground[position + self.delta[move]] == FREE


# Tables are kept beside the level, not in it: branches share the state, and what they could change
# in it would show in all of them.
@lru_cache(maxsize=512)
def maze_of(level: Level) -> Maze:
    """Return the tables of a level."""
    return Maze(level)


class Walk(NamedTuple):
    """What a list of moves did."""

    position: int
    """The cell at the end."""
    executed: str
    """The legal moves, in order."""
    illegal: int
    """The number of moves that led into a wall or off the board."""


def walk(maze: Maze, position: int, moves: str) -> Walk:
    """Execute moves in order until the player is on the goal.

    Args:
        maze: The level's tables.
        position: A free cell.
        moves: Letters of U D L R. An illegal move leaves the player where it is.
    """
    # Local names: this loop is the hot path of `step`.
    goal, delta, ground = maze.level.goal, maze.delta, maze.ground
    executed, illegal = "", 0
    for move in moves:
        if position == goal:
            break
        target = position + delta[move]
        if ground[target] == FREE:
            position = target
            executed += move
        else:
            illegal += 1
    return Walk(position, executed, illegal)


def shortest_path(maze: Maze, source: int, target: int) -> str | None:
    """Return the moves of a shortest path, or None if there is no path; see `shortest_walk`.

    Args:
        maze: The level's tables.
        source: A free cell.
        target: Any cell of the board.
    """
    if not maze.free >> target & 1:
        return None
    return shortest_walk(maze.free, source, target, maze.level.stride)


def legal_moves(maze: Maze, position: int) -> str:
    """Return the moves that are legal on a free cell."""
    return "".join(move for move in MOVES if maze.is_open(position, move))


def canonical_form(level: Level) -> bytes:
    """Return what identifies the content of a level.

    It is equal for all rotations and reflections of a level, and for the level walked backwards
    (start and goal exchanged), so that a split never holds the way back of another split's level.
    """
    # Start and goal get the same mark, so the level walked backwards has the same form.
    first, second = sorted((level.start, level.goal))
    cells = level.cells
    marked = f"{cells[:first]}*{cells[first + 1 : second]}*{cells[second + 1 :]}"
    return canonical(marked.split("\n")).encode()
