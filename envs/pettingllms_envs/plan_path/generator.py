"""Levels from a random generator, each with its certificate, and nothing outside its split."""

from __future__ import annotations

import random
from itertools import permutations
from typing import NamedTuple

from pettingllms.arguments import check_number, check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.grid import (
    bits_of,
    board_mask,
    cells_of,
    layers,
    random_bits,
    random_cell,
    shortest_walk,
)
from pettingllms_envs.plan_path.rules import Level, RuledMaze, canonical_form, maze_of, walk
from pettingllms_envs.state_search import ways_from
from pettingllms_envs.terrain import FREE, KEYS, MAX_RULES, WALL, drawn, shown_symbols

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
        """Return the request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If the values contradict one another.
        """
        plain = Request(
            check_whole("rows", self.rows, MIN_SIZE, MAX_SIZE),
            check_whole("cols", self.cols, MIN_SIZE, MAX_SIZE),
            check_number("obstacle_ratio", self.obstacle_ratio, 0, 0.9),
            check_whole("min_moves", self.min_moves, 1),
            check_whole("max_moves", self.max_moves, 1),
            self.split,
            check_whole("rules", self.rules, 0, MAX_RULES),
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
    """Return a random level with the requested properties.

    Every cell is a wall with probability `obstacle_ratio`; the goal is a random free cell, the
    start a random cell whose distance to the goal lies in the requested range. The certificate is
    the breadth-first search from the goal that found the start: its depth is the exact length of a
    shortest path. With rules, the search goes forwards, over cells and keys found, and the goal is
    drawn from the cells that it first meets at such a distance, with all keys found only. A level
    is left out if a program that reads no rules solves it: if a shortest way among the walls alone
    works, or one over the letters that stand on one cell, as keys do, and round all others.

    Args:
        rng: The only source of chance.
        request: A checked request.

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
    """Return a level with drawn rules on the free cells, if they hold one that fits."""
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
    """Return whether a program solves a level that takes letters on one cell for keys.

    It reads no rules: it goes over these cells to the goal, round all other letters where there is
    such a way.

    Args:
        level: The level.
        free: Cells that are no walls.
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
