"""Levels of Plan-Path, what moves do, shortest paths; levels by chance; scripted policies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from pettingllms.arguments import check_number, check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.grid import (
    MOVES,
    UNREACHABLE,
    bits_of,
    board_mask,
    canonical,
    cells_of,
    deltas_of,
    layers,
    random_bits,
    random_cell,
    shortest_walk,
)
from pettingllms_envs.reward import shaped
from pettingllms_envs.state_search import distances_left, ways_from
from pettingllms_envs.terrain import (
    FREE,
    KEYS,
    MAX_RULES,
    SPECIAL,
    WALL,
    Terrain,
    canonical_terrain,
    drawn,
    shown_symbols,
)


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
    rules: str = ""
    """Lines of the rules of further symbols in `cells`, as `pettingllms_envs.terrain` says."""

    ADDED = ("rules",)

    @property
    def stride(self) -> int:
        """The difference between the numbers of a cell and the cell below it."""
        return self.cols + 1

    @property
    def area(self) -> int:
        """More than the number of any cell: a *position* is `opened * area + cell`.

        `opened` is the bit mask of the keys that have been found, always 0 without rules.
        """
        return self.rows * (self.cols + 1)

    def cell(self, row: int, col: int) -> int:
        """The number of a cell."""
        return row * (self.cols + 1) + col

    def is_free(self, row: int, col: int) -> bool:
        """Whether there is such a cell and the player may be on it."""
        inside = 0 <= row < self.rows and 0 <= col < self.cols
        return inside and self.cells[self.cell(row, col)] != WALL


class Outlook(NamedTuple):
    """What rewards and infos say about a cell of the player."""

    potential: float
    """In [-0.01, 0.1]; see `shaped`."""
    distance: int
    """Moves left to the goal, `UNREACHABLE` if one-way cells or ice leave no way."""
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

    def distance(self, cell: int) -> int:
        """The moves from a cell to the goal, `UNREACHABLE` if there is no path."""
        bit = 1 << cell
        for moves, ring in enumerate(self._rings):
            if ring & bit:
                return moves
        return UNREACHABLE

    def outlook(self, cell: int) -> Outlook:
        """The outlook of a position; without rules, one that can reach the goal.

        An episode visits few cells of a board, so they are looked up one by one.
        """
        # A dictionary beside the tables: one look-up where a cached method would hash the level.
        known = self._outlooks.get(cell)
        if known is None:
            level, distance = self.level, self.distance(cell)
            place = divmod(cell % level.area if level.rules else cell, level.cols + 1)
            known = Outlook(shaped(distance, level.shortest), distance, place)
            self._outlooks[cell] = known
        return known

    def step(self, position: int, move: str) -> int:
        """The cell after one move; an illegal move leads nowhere."""
        target = position + self.delta[move]
        return target if self.ground[target] == FREE else position

    def is_open(self, position: int, move: str) -> bool:
        """Whether a move from a free cell is legal."""
        return self.ground[position + self.delta[move]] == FREE

    def moved(self, position: int, cell: int) -> int:
        """The position of a player who is put on a free cell."""
        return cell


class RuledMaze(Maze):
    """A maze with rules of its own: steps on it depend on the keys that were found."""

    __slots__ = ("_area", "_left", "_terrain")

    def __init__(self, level: Level) -> None:
        self.level = level
        self._area = level.area
        self._terrain = Terrain(level.cells, level.cols)
        self.delta, self.ground = self._terrain.delta, self._terrain.ground
        self.free = bits_of([level.cells], FREE + SPECIAL)
        self._left: dict[int, int] | None = None
        self._outlooks = {}

    def distance(self, cell: int) -> int:
        """The moves left, `UNREACHABLE` where there is no path or no episode comes."""
        # Only when asked: levels of a file are read by the thousand and played a few at a time.
        if self._left is None:
            level, area = self.level, self._area
            self._left = distances_left(level.start, self.after, lambda at: at % area == level.goal)
        return self._left.get(cell, UNREACHABLE)

    def step(self, position: int, move: str) -> int:
        """The position after one move, the same one if the move is illegal."""
        opened, cell = divmod(position, self._area)
        rest = self._terrain.glide(cell, move, opened)
        return self._terrain.opened_at(rest, opened) * self._area + rest

    def is_open(self, position: int, move: str) -> bool:
        """Whether a move is legal."""
        return self.step(position, move) != position

    def moved(self, position: int, cell: int) -> int:
        """The position of a player who is put on a free cell, with the keys found so far."""
        return self._terrain.opened_at(cell, position // self._area) * self._area + cell

    def after(self, position: int) -> Iterator[tuple[str, int]]:
        """Yield the legal moves and the positions to which they lead; none from the goal."""
        for move in "" if position % self._area == self.level.goal else MOVES:
            if (following := self.step(position, move)) != position:
                yield move, following


# Tables are kept beside the level, not in it: branches share the state, and what they could change
# in it would show in all of them.
@lru_cache(maxsize=512)
def maze_of(level: Level) -> Maze:
    """The tables of a level."""
    return RuledMaze(level) if level.rules else Maze(level)


class Walk(NamedTuple):
    """What a list of moves did."""

    position: int
    """The cell at the end."""
    executed: str
    """The legal moves, in order."""
    illegal: int
    """The number of moves that led into a wall or off the board."""


def walk(maze: Maze, position: int, moves: str) -> Walk:
    """Execute moves in order until the player is on the goal; an illegal one moves nothing."""
    # Local names: this loop is the hot path of `step`.
    goal, delta, ground = maze.level.goal, maze.delta, maze.ground
    executed, illegal = "", 0
    if maze.level.rules:
        return _walk_by_rules(maze, position, moves)
    for move in moves:
        # What follows the goal is left alone: it is neither executed nor illegal.
        if position == goal:
            break
        target = position + delta[move]
        if ground[target] == FREE:
            position = target
            executed += move
        else:
            illegal += 1
    return Walk(position, executed, illegal)


def _walk_by_rules(maze: Maze, position: int, moves: str) -> Walk:
    goal, area = maze.level.goal, maze.level.area
    executed, illegal = "", 0
    for move in moves:
        if position % area == goal:
            break
        following = maze.step(position, move)
        if following == position:
            illegal += 1
        else:
            position = following
            executed += move
    return Walk(position, executed, illegal)


def shortest_path(maze: Maze, source: int, target: int) -> str | None:
    """The moves of a shortest path from a position to a cell, or None; see `shortest_walk`."""
    # Ice and doors make moves depend on more than the cell: a search over positions is needed.
    if isinstance(maze, RuledMaze):
        area = maze.level.area
        ways = ways_from(source, maze.after)
        return next((way for at, way in ways.items() if at % area == target), None)
    if not maze.free >> target & 1:
        return None
    return shortest_walk(maze.free, source, target, maze.level.stride)


def legal_moves(maze: Maze, position: int) -> str:
    """The moves that are legal on a free cell."""
    return "".join(move for move in MOVES if maze.is_open(position, move))


def canonical_form(level: Level) -> bytes:
    """What identifies the content of a level.

    It is equal for all rotations and reflections of a level, and for the level walked backwards
    (start and goal exchanged), so that a split never holds the way back of another split's level.
    Rules count by what they mean, not by their letters; no path leads back where they are.
    """
    # Start and goal get the same mark, so the level walked backwards has the same form.
    cells = level.cells
    if level.rules:
        marks = {level.start: "P", level.goal: "G"}
        marked = "".join(marks.get(cell, symbol) for cell, symbol in enumerate(cells))
        return canonical_terrain(marked.split("\n")).encode()
    # The lower cell first, whichever it is: the level and its way back are cut alike.
    first, second = sorted((level.start, level.goal))
    marked = f"{cells[:first]}*{cells[first + 1 : second]}*{cells[second + 1 :]}"
    return canonical(marked.split("\n")).encode()


MIN_SIZE, MAX_SIZE = 4, 64
MIN_MOVES = 4
"""Default of `min_moves`: shorter levels are solved by luck."""

MIN_FREE_CELLS = 8
"""Boards with fewer free cells are too small for rules."""

_ATTEMPT_CELLS = 2_000_000
_MIN_ATTEMPTS = 2_000


class Request(NamedTuple):
    """The properties of the levels to generate; `checked` says which are possible."""

    rows: int
    cols: int
    obstacle_ratio: float
    min_moves: int
    max_moves: int
    split: str | None
    rules: int = 0
    """Rules that are drawn with each level; see `pettingllms_envs.terrain`."""

    def checked(self) -> Request:
        """The request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If the values contradict one another.
        """
        plain = self._replace(
            rows=check_whole("rows", self.rows, MIN_SIZE, MAX_SIZE),
            cols=check_whole("cols", self.cols, MIN_SIZE, MAX_SIZE),
            obstacle_ratio=check_number("obstacle_ratio", self.obstacle_ratio, 0, 0.9),
            min_moves=check_whole("min_moves", self.min_moves, 1),
            max_moves=check_whole("max_moves", self.max_moves, 1),
            rules=check_whole("rules", self.rules, 0, MAX_RULES),
        )
        check_split(self.split)
        longest = self.rows * self.cols - 1
        if self.min_moves > self.max_moves:
            raise UnreachableRequest(
                f"no level has at least min_moves={self.min_moves} and at most "
                f"max_moves={self.max_moves} moves; lower the first or raise the second, which is "
                "max_turns * moves_per_turn unless it is given"
            )
        if self.min_moves > longest:
            raise UnreachableRequest(
                f"no path on {self.rows}x{self.cols} cells has min_moves={self.min_moves} moves; "
                f"at most {longest} are possible"
            )
        return plain


def generate(rng: random.Random, request: Request) -> Level:
    """A random level with the requested properties.

    Every cell is a wall with probability `obstacle_ratio`; the goal is a random free cell, the
    start a random cell whose distance to the goal lies in the requested range. The certificate is
    the breadth-first search from the goal that found the start: its depth is the exact length of a
    shortest path. With rules, the search goes forwards, over cells and keys found, and the goal is
    drawn from the cells that it first meets at such a distance, with all keys found only. A level
    is left out if a program that reads no rules solves it: if a shortest way among the walls alone
    works, or one over the letters that stand on one cell, as keys do, and round all others.

    Raises:
        UnreachableRequest: If 2,000 boards (20,000 of size 10x10, 500 with rules) held none.
    """
    rows, cols, ratio, min_moves, max_moves, split, num_rules = request
    stride, board = cols + 1, board_mask(rows, cols)
    attempts = max(_MIN_ATTEMPTS, _ATTEMPT_CELLS // (rows * cols)) if not num_rules else 500
    for _ in range(attempts):
        # Whole boards are drawn as one integer and rejected if they do not fit; repairing a board
        # would bias the distribution of levels.
        free = random_bits(rng, 1.0 - ratio, rows * stride) & board
        if not free:
            continue
        if num_rules:
            level = _with_rules(rng, request, free)
            if level is not None and split in (None, split_of(canonical_form(level))):
                return level
            continue
        goal = random_cell(rng, free)
        # One breadth-first search from the goal gives the exact distance of every possible start:
        # the certificate costs nothing extra.
        rings: list[int] = []
        starts = 0
        for distance, ring in enumerate(layers(free, 1 << goal, stride)):
            if distance > max_moves:
                break
            if distance >= min_moves:
                rings.append(ring)
                starts |= ring
        if not starts:
            continue
        start = random_cell(rng, starts)
        shortest = min_moves + next(i for i, ring in enumerate(rings) if ring >> start & 1)
        level = Level(rows, cols, _cells(free, rows, cols), start, goal, shortest)
        # Rejecting by content, not choosing by seed, keeps splits disjoint whatever the seeds.
        if split is None or split_of(canonical_form(level)) == split:
            return level
    raise UnreachableRequest(
        f"{attempts} random boards held no level with rows={rows}, cols={cols}, "
        f"obstacle_ratio={ratio}, min_moves={min_moves}, max_moves={max_moves}, split={split!r}, "
        f"rules={num_rules}; "
        "lower min_moves, raise max_moves, or choose another obstacle_ratio"
    )


def _with_rules(rng: random.Random, request: Request, free: int) -> Level | None:
    """A level with drawn rules on the free cells, if they hold one that fits."""
    rows, cols, _, min_moves, max_moves, _, num_rules = request
    places = cells_of(free)
    if len(places) < MIN_FREE_CELLS:
        return None
    symbols, rules = drawn(rng, places, num_rules)
    plain = _cells(free, rows, cols)
    cells = "".join(symbols.get(cell, symbol) for cell, symbol in enumerate(plain))
    others = [cell for cell in places if cell not in symbols]
    start = rng.choice(others)
    # No goal yet: it plays no part in what moves do.
    maze = RuledMaze(Level(rows, cols, cells, start, -1, 0, rules))
    num_keys = sum(key in cells for key in KEYS)
    shortest: dict[int, int] = {}
    early: set[int] = set()
    for position, way in ways_from(start, maze.after).items():
        opened, cell = divmod(position, rows * (cols + 1))
        shortest.setdefault(cell, len(way))
        if opened + 1 < 1 << num_keys:  # never without keys
            early.add(cell)
    goals = [
        cell
        for cell in others
        if min_moves <= shortest.get(cell, 0) <= max_moves and cell not in early
    ]
    if not goals:
        return None
    goal = rng.choice(goals)
    level = Level(rows, cols, cells, start, goal, shortest[goal], rules)
    blind = shortest_walk(free, start, goal, cols + 1)
    assert blind is not None  # rules only take ways away
    is_easy = walk(maze_of(level), start, blind).position % level.area == goal
    return None if is_easy or _is_solved_over_keys(level, free) else level


def _is_solved_over_keys(level: Level, free: int) -> bool:
    """Whether a program solves a level that takes letters on one cell for keys.

    It reads no rules: it goes over these cells to the goal, round all other letters where there is
    such a way; `free` are the cells that are not walls.
    """
    maze, stride = maze_of(level), level.stride
    keys = [cell for cell, symbol in enumerate(level.cells) if symbol in KEYS]
    plain = bits_of([level.cells.translate(shown_symbols(level.rules, 0))], FREE)
    for order in permutations(keys):
        here, moves = level.start, ""
        for cell in (*order, level.goal):
            way = shortest_walk(plain | 1 << here | 1 << cell, here, cell, stride)
            moves += (shortest_walk(free, here, cell, stride) if way is None else way) or ""
            here = cell
        if walk(maze, level.start, moves).position % level.area == level.goal:
            return True
    return False


def _cells(free: int, rows: int, cols: int) -> str:
    stride = cols + 1
    # Reversed, since bit 0 is the last digit; the guard column is cut by the slices.
    flat = f"{free:0{rows * stride}b}"[::-1].replace("0", WALL).replace("1", FREE)
    return "\n".join([flat[at : at + cols] for at in range(0, rows * stride, stride)])


def moves_of(level: Level, position: int, policy: str, num_moves: int, rng: random.Random) -> str:
    """The moves of a policy, at most `num_moves`, fewer only if they end at the goal.

    Oracle follows a shortest path; greedy: see `greedy_walk`; random draws legal moves uniformly;
    there-and-back: see `idle_walk`.
    """
    maze = maze_of(level)
    if policy == "oracle":
        path = shortest_path(maze, position, maze.level.goal)
        return (path or "")[:num_moves]  # by drawn rules there may be no way any more
    if policy == "there-and-back":
        return idle_walk(maze, position)[:num_moves]
    return (greedy_walk if policy == "greedy" else random_walk)(maze, position, num_moves, rng)


def target_cell(
    level: Level, position: int, policy: str, num_moves: int, rng: random.Random
) -> int:
    """The cell to which the policy of a tool agent asks for a path.

    Oracle names the goal; there-and-back the cell where `idle_walk` ends; greedy the cell of a
    greedy walk of `num_moves` that is nearest to the goal by Manhattan distance; random any free
    cell but the player's.
    """
    maze = maze_of(level)
    if policy == "oracle" or position % level.area == level.goal:
        return maze.level.goal
    if policy == "there-and-back":
        return walk(maze, position, idle_walk(maze, position)[:num_moves]).position % level.area
    if policy == "random":
        return rng.choice(cells_of(maze.free & ~(1 << position % level.area)))
    moves = greedy_walk(maze, position, num_moves, rng)
    visited = [walk(maze, position, moves[:end]).position for end in range(1, len(moves) + 1)]
    # A call for the cell under the player is refused, so any other cell is better.
    others = [cell for cell in visited if cell != position] or [position]
    return min((cell % level.area for cell in others), key=lambda cell: manhattan(level, cell))


def idle_walk(maze: Maze, position: int) -> str:
    """The way back to the start; from there, the way to the last cell before the goal."""
    level = maze.level
    if position != level.start:
        return shortest_path(maze, position, level.start) or ""
    return (shortest_path(maze, position, level.goal) or "")[:-1]


def manhattan(level: Level, position: int) -> int:
    """The distance of a position to the goal that a person without walls would walk."""
    row, col = divmod(position % level.area, level.stride)
    goal_row, goal_col = divmod(level.goal, level.stride)
    return abs(row - goal_row) + abs(col - goal_col)


def greedy_walk(maze: Maze, position: int, num_moves: int, rng: random.Random) -> str:
    """The moves of a reactive rule that plans nothing.

    Each move goes to the free neighbour that is nearest to the goal by Manhattan distance, ties
    broken at random. The rule never bumps and remembers nothing, so a dead end can hold it.
    """
    moves = ""
    for _ in range(num_moves):
        legal = legal_moves(maze, position)
        if position % maze.level.area == maze.level.goal or not legal:
            break
        ranked = [(manhattan(maze.level, maze.step(position, move)), move) for move in legal]
        # Ties are broken by chance, or the order of U, D, L, R would be a plan of its own.
        nearest = min(ranked)[0]
        move = rng.choice([move for rank, move in ranked if rank == nearest])
        moves += move
        position = maze.step(position, move)
    return moves


def random_walk(maze: Maze, position: int, num_moves: int, rng: random.Random) -> str:
    """Legal moves drawn uniformly, as many as asked for or until the goal."""
    moves = ""
    for _ in range(num_moves):
        legal = legal_moves(maze, position)
        if position % maze.level.area == maze.level.goal or not legal:
            break
        moves += (move := rng.choice(legal))
        position = maze.step(position, move)
    return moves
