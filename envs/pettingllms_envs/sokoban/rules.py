"""Sokoban on bit-boards: levels, states, moves, and how far a placement of boxes is from solved.

Cells are numbered as `pettingllms_envs.grid` says; a set of cells is an int.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pettingllms_envs.grid import board_mask, cells_of, deltas_of, layers
from pettingllms_envs.reward import shaped

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = "# .$*@+"

MAX_PLACEMENTS = 4096
"""Placements of boxes that the guide of one level remembers."""


class Level(NamedTuple):
    """A warehouse with its boxes and the player at their first places."""

    rows: int
    cols: int
    floor: int
    """The cells that are no walls."""
    goals: int
    boxes: int
    """As many boxes as goals."""
    player: int
    """Number of the player's cell."""
    certificate: str = "none"
    """What `num_moves` is: `"optimal"`, `"reference"` (some solution) or `"none"` (unknown)."""
    num_moves: int = 0
    """Length of a shortest or of the reference solution, in moves; 0 if none is known."""
    solution: str = ""
    """The reference solution, as letters; empty if the certificate is another."""
    cells: str = ""
    """With rules: the symbols of all cells, as `pettingllms_envs.terrain` says; else empty."""
    rules: str = ""
    """Lines of the level's own rules, as `pettingllms_envs.terrain` says."""

    ADDED = ("cells", "rules")

    @property
    def stride(self) -> int:
        """The difference between the numbers of a cell and the cell below it."""
        return self.cols + 1


class Placement(NamedTuple):
    """Where everything is that moves."""

    player: int
    """Number of the player's cell."""
    boxes: int
    """The cells with boxes."""
    opened: int = 0
    """Bit mask of the keys that have been found; 0 without rules."""

    ADDED = ("opened",)


class Outlook(NamedTuple):
    """How far a placement is from solved."""

    potential: float
    """In [-0.01, 0.1]; see `shaped`."""
    pushes_left: int
    """Lower bound of the pushes left, -1 if the level is certainly lost."""
    boxes_home: int
    """Boxes on goals."""


def step(floor: int, player: int, boxes: int, delta: int) -> tuple[int, int]:
    """Return player and boxes after one move; an illegal move changes nothing.

    Args:
        floor: The cells that are no walls.
        player: Number of the player's cell.
        boxes: The cells with boxes.
        delta: Change of the cell number.
    """
    target = player + delta
    bit = 1 << target
    if boxes & bit:
        beyond = 1 << target + delta
        if beyond & boxes or not beyond & floor:
            return player, boxes
        return target, boxes ^ bit ^ beyond
    return (target, boxes) if bit & floor else (player, boxes)


def play(level: Level, player: int, boxes: int, moves: str) -> tuple[int, int, str, int, int]:
    """Execute moves in order until all boxes are on goals.

    Args:
        level: Floor and goals.
        player: Number of the player's cell.
        boxes: The cells with boxes.
        moves: Letters of U D L R; an illegal move changes nothing.

    Returns:
        Player and boxes afterwards, the legal moves in order, the number of illegal ones, and that
        of pushes.
    """
    floor, goals, delta = level.floor, level.goals, deltas_of(level.cols + 1)
    executed, num_illegal, num_pushes = "", 0, 0
    for move in moves:
        if boxes == goals:
            break
        change = delta[move]  # what follows is `step`, without the call
        target = player + change
        bit = 1 << target
        if boxes & bit:
            beyond = 1 << target + change
            if beyond & boxes or not beyond & floor:
                num_illegal += 1
                continue
            boxes ^= bit ^ beyond
            num_pushes += 1
        elif not bit & floor:
            num_illegal += 1
            continue
        player = target
        executed += move
    return player, boxes, executed, num_illegal, num_pushes


class Guide:
    """Distances of the states of one level from solved; derived from the level alone.

    Attributes:
        alive: The cells from which a single box can be pushed to some goal.
    """

    __slots__ = ("_distances", "_level", "_pushes", "_solid", "_start", "_walks", "alive")

    def __init__(self, level: Level) -> None:
        self._level = level
        self._solid = board_mask(level.rows, level.cols) & ~level.floor
        goals = cells_of(level.goals)
        self._distances = [push_distances(level.floor, goal, level.stride) for goal in goals]
        self.alive = sum(1 << cell for cell in set().union(*self._distances))
        self._pushes: dict[int, int] = {}
        self._walks: dict[int, tuple[int, ...]] = {}
        self._start: float | None = None

    @property
    def start(self) -> float:
        """The distance of the level's first state."""
        if self._start is None:  # not in the constructor: most levels of a file are never played
            self._start = self.distance(self._level.player, self._level.boxes)
        return self._start

    def distance(self, player: int, boxes: int) -> float:
        """Return pushes left (a lower bound) plus the way to the next useful push, below 1.

        The way is measured in steps around the boxes, divided by the number of floor cells + 1;
        so a push that lowers the bound always counts more than any walk. 0 if solved, -1 if lost.
        """
        pushes = self.pushes_left(boxes)
        if pushes <= 0:
            return pushes
        walks = self._walks.get(boxes)
        if walks is None:
            walks = self._find_walks(boxes)
        # A walk has fewer steps than there are floor cells, so the fraction is always below 1.
        longest = self._level.floor.bit_count()
        bit = 1 << player
        for steps, cells in enumerate(walks):
            if cells & bit:
                return pushes + steps / (longest + 1)
        # No useful push can be reached: the way counts as the longest, still less than one push.
        return pushes + longest / (longest + 1)

    def pushes_left(self, boxes: int) -> int:
        """Return a lower bound of the pushes left, or -1 if the placement is certainly lost.

        Lost are: a box on a cell from which it can reach no goal, boxes that cannot be assigned to
        different goals, and a 2x2 square of boxes and walls that holds a box beside its goal.
        """
        known = self._pushes.get(boxes)
        if known is None:
            # Clearing everything bounds the memory without the bookkeeping of an LRU cache.
            if len(self._pushes) >= MAX_PLACEMENTS:
                self._pushes.clear()
            lost = boxes & ~self.alive or self._is_frozen(boxes)
            known = self._pushes[boxes] = -1 if lost else self._assignment(boxes)
        return known

    def _find_walks(self, boxes: int) -> tuple[int, ...]:
        """Return the cells from which a push that lowers the bound is 0, 1, 2, ... steps away."""
        level, now, starts = self._level, self.pushes_left(boxes), 0
        free = level.floor & ~boxes
        # A push needs the cell ahead of the box and the one behind it (the player's) to be free;
        # only pushes that lower the bound without losing the level are useful.
        for cell in cells_of(boxes):
            for delta in deltas_of(level.stride).values():
                if free >> cell + delta & 1 and free >> cell - delta & 1:
                    after = boxes ^ 1 << cell ^ 1 << cell + delta
                    if 0 <= self.pushes_left(after) < now:
                        starts |= 1 << cell - delta
        if len(self._walks) >= MAX_PLACEMENTS:
            self._walks.clear()
        # One flood from all cells of the player gives the walk from any cell to the nearest push.
        walks = self._walks[boxes] = tuple(layers(free, starts, level.stride))
        return walks

    def _is_frozen(self, boxes: int) -> bool:
        stride, blocked = self._level.stride, self._solid | boxes
        # Bit c of `corner` is set if c and its right, lower and lower right neighbours are blocked;
        # the shifts back mark all four cells of each such square. No box in it can ever move.
        corner = blocked & blocked >> 1 & blocked >> stride & blocked >> stride + 1
        square = corner | corner << 1 | corner << stride | corner << stride + 1
        return bool(square & boxes & ~self._level.goals)

    def _assignment(self, boxes: int) -> int:
        """Return the minimum sum of push distances over all assignments, -1 if there is none."""
        # Dynamic programming over subsets: `best` maps a bit mask of taken goals to the lowest cost
        # of the boxes so far. With at most 6 boxes that is 64 subsets, so no Hungarian method.
        best = {0: 0}
        for box in cells_of(boxes):
            following: dict[int, int] = {}
            for taken, cost in best.items():
                for index, table in enumerate(self._distances):
                    if not taken >> index & 1 and box in table:
                        key, total = taken | 1 << index, cost + table[box]
                        if total < following.get(key, 1 << 30):
                            following[key] = total
            best = following
        return min(best.values(), default=-1)


# The state itself holds nothing that is computed from the level: branches share the state, and what
# they could change in it would show in all of them.
guide_of = lru_cache(maxsize=512)(Guide)
"""Level -> its guide, made once."""


# What the proposer promises, the planner often does, and agents and branches share what they see.
@lru_cache(maxsize=4096)
def outlook_of(level: Level, player: int, boxes: int) -> Outlook:
    """Return how far a placement of player and boxes is from solved."""
    guide = guide_of(level)
    potential = shaped(guide.distance(player, boxes), guide.start)
    return Outlook(potential, guide.pushes_left(boxes), (boxes & level.goals).bit_count())


def push_distances(floor: int, goal: int, stride: int) -> dict[int, int]:
    """Return cell -> minimum number of pushes that bring a single box from there to a goal.

    Other boxes and the way of the player are ignored, so it is a lower bound; a cell that is
    missing is dead for this goal.
    """
    table = {goal: 0}
    frontier, distance = 1 << goal, 0
    seen = frontier
    while frontier:
        distance += 1
        pulled = 0
        for shift in (1, stride):
            # The box goes to a neighbouring cell, the player to the one behind it.
            # `frontier << shift` is the box after the pull; `floor >> shift` says that the cell one
            # further is floor for the player.
            pulled |= frontier << shift & floor & floor >> shift
            pulled |= frontier >> shift & floor & floor << shift
        frontier = pulled & ~seen
        seen |= frontier
        for cell in cells_of(frontier):
            table[cell] = distance
    return table
