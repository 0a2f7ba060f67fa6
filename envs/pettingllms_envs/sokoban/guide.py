"""How far a state is from solved, as the reward sees it, and which states are certainly lost."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pettingllms_envs.grid import board_mask, cells_of, layers
from pettingllms_envs.sokoban.rules import Level
from pettingllms_envs.sokoban.search import push_distances

MAX_CACHED = 4096


class Outlook(NamedTuple):
    """What the guide knows about a placement of boxes."""

    pushes: int
    """Lower bound of the pushes left: cheapest assignment of boxes to goals; -1 if lost."""
    walks: tuple[int, ...]
    """The player's cells from which a push that lowers the bound is 0, 1, 2, ... steps away."""


class Guide:
    """Distances that make up the potential, for one level; derived from the level alone.

    Attributes:
        alive: The cells from which a single box can be pushed to some goal.
    """

    __slots__ = (
        "_distances",
        "_first",
        "_floor",
        "_goals",
        "_outlooks",
        "_pushes",
        "_solid",
        "_start",
        "_steps",
        "_stride",
        "alive",
    )

    def __init__(self, level: Level) -> None:
        self._floor = level.floor
        self._goals = level.goals
        # A walk has fewer steps than there are floor cells, so steps / _steps is always below 1.
        self._steps = level.floor.bit_count() + 1
        self._solid = board_mask(level.rows, level.cols) & ~level.floor
        self._stride = stride = level.stride
        self._distances = [push_distances(level.floor, g, stride) for g in cells_of(level.goals)]
        self.alive = sum(1 << cell for cell in set().union(*self._distances))
        # `start` is computed on demand: most levels that are generated are never played.
        self._first = (level.player, level.boxes)
        self._start: float | None = None
        self._outlooks: dict[int, Outlook] = {}
        self._pushes: dict[int, int] = {}

    @property
    def start(self) -> float:
        """The distance of the level's first state."""
        if self._start is None:
            self._start = self.distance(*self._first)
        return self._start

    def distance(self, player: int, boxes: int) -> float:
        """Return pushes left (a lower bound) plus the way to the next useful push, below 1.

        The way is measured in steps around the boxes, divided by the number of floor cells + 1;
        so a push that lowers the bound always counts more than any walk. 0 if solved, -1 if lost.
        """
        outlook = self._outlooks.get(boxes)
        if outlook is None:
            outlook = self._look(boxes)
        if outlook.pushes <= 0:
            return outlook.pushes
        bit = 1 << player
        for steps, cells in enumerate(outlook.walks):
            if cells & bit:
                return outlook.pushes + steps / self._steps
        # No useful push can be reached: the way counts as the longest, still less than one push.
        return outlook.pushes + (self._steps - 1) / self._steps

    def pushes_left(self, boxes: int) -> int:
        """Return a lower bound of the pushes left, or -1 if the placement is certainly lost.

        Lost are: a box on a cell from which it can reach no goal, boxes that cannot be assigned to
        different goals, and a 2x2 square of boxes and walls that holds a box that is off its goal.
        """
        known = self._pushes.get(boxes)
        if known is None:
            # Clearing everything bounds the memory without the bookkeeping of an LRU cache.
            if len(self._pushes) >= MAX_CACHED:
                self._pushes.clear()
            lost = boxes & ~self.alive or self._is_frozen(boxes)
            known = self._pushes[boxes] = -1 if lost else self._assignment(boxes)
        return known

    def useful_pushes(self, boxes: int) -> list[tuple[int, int]]:
        """Return (player's cell, change of the cell number) of the pushes that lower the bound."""
        # A push needs the cell ahead of the box and the one behind it (the player's) to be free;
        # only pushes that lower the bound without losing the level are useful.
        now, free = self.pushes_left(boxes), self._floor & ~boxes
        return [
            (cell - delta, delta)
            for cell in cells_of(boxes)
            for delta in (-self._stride, self._stride, -1, 1)
            if free >> cell + delta & 1
            and free >> cell - delta & 1
            and 0 <= self.pushes_left(boxes ^ 1 << cell ^ 1 << cell + delta) < now
        ]

    def _look(self, boxes: int) -> Outlook:
        pushes = self.pushes_left(boxes)
        walks: tuple[int, ...] = ()
        if pushes > 0:
            # One flood from all cells of the player gives the walk from any cell to the nearest
            # push.
            starts = 0
            for cell, _ in self.useful_pushes(boxes):
                starts |= 1 << cell
            walks = tuple(layers(self._floor & ~boxes, starts, self._stride))
        if len(self._outlooks) >= MAX_CACHED:
            self._outlooks.clear()
        outlook = self._outlooks[boxes] = Outlook(pushes, walks)
        return outlook

    def _is_frozen(self, boxes: int) -> bool:
        stride, blocked = self._stride, self._solid | boxes
        # Bit c of `corner` is set if c and its right, lower and lower right neighbours are blocked;
        # the shifts back mark all four cells of each such square. No box in it can ever move.
        corner = blocked & blocked >> 1 & blocked >> stride & blocked >> stride + 1
        square = corner | corner << 1 | corner << stride | corner << stride + 1
        return bool(square & boxes & ~self._goals)

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


@lru_cache(maxsize=512)
def guide_of(level: Level) -> Guide:
    """Return the guide of a level."""
    return Guide(level)
