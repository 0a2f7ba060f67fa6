"""Sokoban on bit-boards: levels, states, moves, how far a placement of boxes is from solved.

And levels by chance that can be solved, with a certificate of their length. Cells are numbered as
`pettingllms_envs.grid` says; a set of cells is an int.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from math import comb
from typing import NamedTuple

from pettingllms.arguments import check_number, check_whole
from pettingllms.errors import LevelFormatError, UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.grid import (
    MOVES,
    UNREACHABLE,
    board_mask,
    canonical,
    cells_of,
    deltas_of,
    flood,
    layers,
    random_bits,
    random_cell,
    shortest_walk,
)
from pettingllms_envs.reward import shaped
from pettingllms_envs.state_search import MAX_STATES, distances_left, ways_from
from pettingllms_envs.terrain import FREE, KEYS, MAX_RULES, Terrain, canonical_terrain, drawn

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = "# .$*@+"

Layer = dict[int, int]
"""Boxes -> bit-board of the player's cells."""

NODE_LIMIT = 300_000
"""Maximum number of (boxes, layer) pairs that `Warehouse.solve` looks at."""

MAX_PLACEMENTS = 4096
"""Placements of boxes that one warehouse remembers."""


class Level(NamedTuple):
    """A warehouse with its boxes and the player at their first places."""

    rows: int
    """Number of rows, outer walls included."""
    cols: int
    """Number of columns, outer walls included."""
    floor: int
    """Bit-board of the cells that are not walls."""
    goals: int
    """Bit-board of the goals."""
    boxes: int
    """Bit-board of the boxes, as many as goals."""
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

    @property
    def start(self) -> Placement:
        """Where everything is at first."""
        return Placement(self.player, self.boxes)


class Placement(NamedTuple):
    """Where everything is that moves."""

    player: int
    """Number of the player's cell."""
    boxes: int
    """Bit-board of the boxes."""
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


class Warehouse:
    """What moves do on a level without rules of its own, and how far it is from solved.

    Attributes:
        level: The level, from which all else is derived.
        alive: The cells from which a single box can be pushed to some goal.
    """

    __slots__ = (
        "_barred",
        "_distances",
        "_pushes",
        "_solid",
        "_start",
        "_walks",
        "alive",
        "level",
    )

    def __init__(self, level: Level) -> None:
        self.level = level
        self._solid = board_mask(level.rows, level.cols) & ~level.floor
        goals = cells_of(level.goals)
        self._distances = [push_distances(level.floor, goal, level.stride) for goal in goals]
        self.alive = sum(1 << cell for cell in set().union(*self._distances))
        # The cells on which a box makes `after` give up.
        self._barred = 0
        self._pushes: dict[int, int] = {}
        self._walks: dict[int, tuple[int, ...]] = {}
        self._start: float | None = None

    def play(self, place: Placement, moves: str) -> tuple[Placement, str, int, int]:
        """Execute moves in order until all boxes are on goals; an illegal move changes nothing.

        Returns:
            The placement afterwards, the legal moves in order, the number of illegal ones, and that
            of pushes.
        """
        # Local names and no calls: this loop is the hot path of `step` of the environment.
        floor, goals, delta = self.level.floor, self.level.goals, deltas_of(self.level.cols + 1)
        player, boxes, _ = place
        executed, num_illegal, num_pushes = "", 0, 0
        for move in moves:
            if boxes == goals:
                break
            change = delta[move]
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
        return Placement(player, boxes), executed, num_illegal, num_pushes

    def step(self, place: Placement, move: str) -> Placement:
        """The placement after one move, the same one if the move is illegal."""
        return self.play(place, move)[0]

    def after(self, place: Placement) -> Iterator[tuple[str, Placement]]:
        """Yield the legal moves and what they lead to; none from a solved placement.

        With rules, none from one with a box on a cell that is not `alive` either.
        """
        is_over = place.boxes == self.level.goals or place.boxes & self._barred
        for move in "" if is_over else MOVES:
            if (following := self.step(place, move)) != place:
                yield move, following

    def outlook(self, place: Placement) -> Outlook:
        """How far a placement is from solved."""
        if self._start is None:  # not in the constructor: most levels of a file are never played
            self._start = self.distance(self.level.start)
        potential = shaped(self.distance(place), self._start)
        num_home = (place.boxes & self.level.goals).bit_count()
        return Outlook(potential, self.pushes_left(place), num_home)

    def distance(self, place: Placement) -> float:
        """Pushes left (a lower bound) plus the way to the next useful push, below 1.

        The way is measured in steps around the boxes, divided by the number of floor cells + 1;
        so a push that lowers the bound always counts more than any walk. 0 if solved, -1 if lost.
        """
        pushes = self._bound(place.boxes)
        if pushes <= 0:
            return pushes
        walks = self._walks.get(place.boxes)
        if walks is None:
            walks = self._find_walks(place.boxes)
        # A walk has fewer steps than there are floor cells, so the fraction is always below 1.
        longest = self.level.floor.bit_count()
        bit = 1 << place.player
        for steps, cells in enumerate(walks):
            if cells & bit:
                return pushes + steps / (longest + 1)
        # No useful push can be reached: the way counts as the longest, still less than one push.
        return pushes + longest / (longest + 1)

    def pushes_left(self, place: Placement) -> int:
        """A lower bound of the pushes left, or -1 if the placement is certainly lost.

        Lost are: a box on a cell from which it can reach no goal, boxes that cannot be assigned to
        different goals, and a 2x2 square of boxes and walls that holds a box beside its goal.
        """
        return self._bound(place.boxes)

    def solve(self, place: Placement, node_limit: int = NODE_LIMIT) -> str | None:
        """The moves of a shortest solution, or None if there is none.

        Raises:
            UnreachableRequest: If the search did not end within `node_limit` nodes.
        """
        level, first = self.level, {place.boxes: 1 << place.player}
        # Every layer is kept: `_trace` walks back through them, so no state needs a parent pointer.
        found: list[Layer] = []
        num_nodes = 0
        for layer in layers_of_states(first, level.floor, level.stride, alive=self.alive):
            if num_nodes > node_limit:
                raise UnreachableRequest(
                    f"a {level.rows}x{level.cols} level with {level.goals.bit_count()} boxes was "
                    f"not solved within {node_limit} search nodes"
                )
            found.append(layer)
            if level.goals in layer:
                return _trace(found, level.goals, level.stride)
            num_nodes += len(layer)
        return None

    def walks(self, place: Placement) -> dict[Placement, str]:
        """What can be reached without a push, and the moves of a shortest way."""
        stride, free = self.level.stride, self.level.floor & ~place.boxes
        return {
            Placement(cell, place.boxes): shortest_walk(free, place.player, cell, stride) or ""
            for cell in cells_of(flood(free, 1 << place.player, stride))
        }

    def nearest_push(self, place: Placement) -> str:
        """The moves of the nearest push that brings a box nearer to a goal without one, or none.

        Nearer by Manhattan distance: it knows no walls and no dead ends.
        """
        level, (player, boxes, _) = self.level, place
        free, goals, ways = level.floor & ~boxes, level.goals & ~boxes, list[str]()
        for cell in cells_of(boxes & ~level.goals):
            now = _to_goal(level, goals, cell)
            for move, change in deltas_of(level.stride).items():
                can_be_pushed = free >> cell + change & 1 and free >> cell - change & 1
                if can_be_pushed and _to_goal(level, goals, cell + change) < now:
                    way = shortest_walk(free, player, cell - change, level.stride)
                    ways += [] if way is None else [way + move]
        return min(ways, key=len, default="")

    def _bound(self, boxes: int) -> int:
        """See `pushes_left`; where the player is does not matter."""
        known = self._pushes.get(boxes)
        if known is None:
            # Clearing everything bounds the memory without the bookkeeping of an LRU cache.
            if len(self._pushes) >= MAX_PLACEMENTS:
                self._pushes.clear()
            lost = boxes & ~self.alive or self._is_frozen(boxes)
            known = self._pushes[boxes] = -1 if lost else self._assignment(boxes)
        return known

    def _find_walks(self, boxes: int) -> tuple[int, ...]:
        """The cells from which a push that lowers the bound is 0, 1, 2, ... steps away."""
        level, now, starts = self.level, self._bound(boxes), 0
        free = level.floor & ~boxes
        # A push needs the cell ahead of the box and the one behind it (the player's) to be free;
        # only pushes that lower the bound without losing the level are useful.
        for cell in cells_of(boxes):
            for delta in deltas_of(level.stride).values():
                if free >> cell + delta & 1 and free >> cell - delta & 1:
                    after = boxes ^ 1 << cell ^ 1 << cell + delta
                    if 0 <= self._bound(after) < now:
                        starts |= 1 << cell - delta
        if len(self._walks) >= MAX_PLACEMENTS:
            self._walks.clear()
        # One flood from all cells of the player gives the walk from any cell to the nearest push.
        walks = self._walks[boxes] = tuple(layers(free, starts, level.stride))
        return walks

    def _is_frozen(self, boxes: int) -> bool:
        stride, blocked = self.level.stride, self._solid | boxes
        # Bit c of `corner` is set if c and its right, lower and lower right neighbours are blocked;
        # the shifts back mark all four cells of each such square. No box in it can ever move.
        corner = blocked & blocked >> 1 & blocked >> stride & blocked >> stride + 1
        square = corner | corner << 1 | corner << stride | corner << stride + 1
        return bool(square & boxes & ~self.level.goals)

    def _assignment(self, boxes: int) -> int:
        """The minimum sum of push distances over all assignments, -1 if there is none."""
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


def push_distances(floor: int, goal: int, stride: int) -> dict[int, int]:
    """Cell -> minimum number of pushes that bring a single box from there to a goal.

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


class RuledWarehouse(Warehouse):
    """A warehouse with rules of its own, of which all distances are known exactly."""

    __slots__ = ("_left", "_terrain")

    def __init__(self, level: Level) -> None:
        super().__init__(level)
        self._terrain = Terrain(level.cells, level.cols)
        # What rules forbid beyond walls, so a box is lost by them where it is lost without them.
        self._barred = ~self.alive if level.goals else 0
        self._left: dict[Placement, int] | None = None

    def play(self, place: Placement, moves: str) -> tuple[Placement, str, int, int]:
        """Execute moves until the level is solved; see `Warehouse.play`."""
        executed, num_illegal, num_pushes = "", 0, 0
        for move in moves:
            if place.boxes == self.level.goals:
                break
            following = self.step(place, move)
            if following == place:
                num_illegal += 1
                continue
            num_pushes += following.boxes != place.boxes
            place = following
            executed += move
        return place, executed, num_illegal, num_pushes

    def step(self, place: Placement, move: str) -> Placement:
        """The placement after one move, the same one if the move is illegal."""
        player, boxes, opened = place
        terrain = self._terrain
        target = player + terrain.delta[move]
        if not terrain.can_enter(target, move, opened):
            return place
        if boxes >> target & 1:
            rest = terrain.glide(target, move, opened, boxes, is_player=False)
            if rest == target:
                return place
            boxes ^= 1 << target | 1 << rest
        player = terrain.glide(player, move, opened, boxes)
        return Placement(player, boxes, terrain.opened_at(player, opened))

    def distance(self, place: Placement) -> int:
        """The exact number of moves left, `UNREACHABLE` if the level is lost."""
        if self._left is None:
            goals = self.level.goals
            self._left = distances_left(self.level.start, self.after, lambda at: at.boxes == goals)
        return self._left.get(place, UNREACHABLE)

    def pushes_left(self, place: Placement) -> int:
        """The boxes that are not on goals, or -1 if the level is lost."""
        is_lost = self.distance(place) == UNREACHABLE
        return UNREACHABLE if is_lost else (self.level.goals & ~place.boxes).bit_count()

    def solve(self, place: Placement, node_limit: int = NODE_LIMIT) -> str | None:
        """The moves of a shortest solution, or None if there is none; no search is needed."""
        moves, left = "", self.distance(place)
        while left > 0:
            left -= 1
            move, place = next(one for one in self.after(place) if self.distance(one[1]) == left)
            moves += move
        return moves if left == 0 else None

    def walks(self, place: Placement) -> dict[Placement, str]:
        """What can be reached without a push, and the moves of a shortest way; nearest first."""

        def after(here: Placement) -> Iterator[tuple[str, Placement]]:
            return (pair for pair in self.after(here) if pair[1].boxes == place.boxes)

        return ways_from(place, after)

    def nearest_push(self, place: Placement) -> str:
        """The moves of the nearest push that brings boxes nearer to any goals, or none."""
        here = spread(self.level, place.boxes)
        for at, way in self.walks(place).items():
            for move, following in self.after(at):
                if following.boxes != at.boxes and spread(self.level, following.boxes) < here:
                    return way + move
        return ""


# The state itself holds nothing that is computed from the level: branches share the state, and what
# they could change in it would show in all of them.
_warehouse = lru_cache(maxsize=512)(Warehouse)
# All distances of a level with rules are kept, so only those of a few levels.
_ruled_warehouse = lru_cache(maxsize=32)(RuledWarehouse)


def warehouse_of(level: Level) -> Warehouse:
    """The warehouse of a level, made once."""
    return _ruled_warehouse(level) if level.rules else _warehouse(level)


# What the proposer promises, the planner often does, and agents and branches share what they see.
@lru_cache(maxsize=4096)
def outlook_of(level: Level, place: Placement) -> Outlook:
    """How far a placement is from solved, by whatever rules the level has."""
    return warehouse_of(level).outlook(place)


def spread(level: Level, boxes: int) -> int:
    """The sum of the boxes' Manhattan distances to their nearest goals."""
    return sum(_to_goal(level, level.goals, box) for box in cells_of(boxes))


def _to_goal(level: Level, goals: int, cell: int) -> int:
    row, col = divmod(cell, level.stride)
    places = (divmod(goal, level.stride) for goal in cells_of(goals))
    return min(abs(row - goal[0]) + abs(col - goal[1]) for goal in places)


def layers_of_states(
    layer: Layer, floor: int, stride: int, alive: int = -1, *, is_backward: bool = False
) -> Iterator[Layer]:
    """Yield the states at 0, 1, 2, ... moves from those of a layer, each in one layer only.

    Boxes are pushed, and enter only the `alive` cells; backward they are pulled. From all solved
    states backward, the index of a layer is the exact length of a shortest solution of its states.
    """
    # `seen[boxes]` has the player cells already visited with these boxes, in any layer.
    seen = dict(layer)
    while layer:
        yield layer
        following: Layer = {}
        for boxes, players in layer.items():
            _expand(following, seen, boxes, players, floor & ~boxes, alive, stride, is_backward)
        layer = following


def _expand(
    layer: Layer,
    seen: Layer,
    boxes: int,
    players: int,
    free: int,
    alive: int,
    stride: int,
    is_backward: bool,
) -> None:
    """Add to `layer` what one move leads to and was not `seen`."""
    # Bit legend: every argument is a bitboard (bit = cell number). Shifting by 1 or `stride` moves
    # all players one cell at once; the guard column of `pettingllms_envs.grid` stops wrap-around.
    spread = players << 1 | players >> 1 | players << stride | players >> stride
    known = seen[boxes]
    walked = spread & free & ~known
    if walked:
        seen[boxes] = known | walked
        layer[boxes] = layer.get(boxes, 0) | walked
    # A pull reverses a push: box and player both step back, so two cells in a line beyond the box
    # must be free. Dead cells need no test there: what was pulled can be pushed back.
    touched, targets = spread & boxes, free & alive
    while touched:
        box = touched & -touched
        touched ^= box
        # `beside` is where the player comes from; `needed` is on the other side of the box, where
        # it is pushed to, or behind the player, who goes there when it is pulled.
        right, left, below, above = box << 1, box >> 1, box << stride, box >> stride
        if is_backward:
            far_below, far_above = below << stride, above >> stride
            sides = (right, right << 1), (left, left >> 1), (below, far_below), (above, far_above)
        else:
            sides = (right, left), (left, right), (below, above), (above, below)
        for beside, needed in sides:
            if beside & players and needed & targets:
                moved, player = (beside, needed) if is_backward else (needed, box)
                after = boxes ^ box ^ moved
                known = seen.get(after, 0)
                if not known & player:
                    seen[after] = known | player
                    layer[after] = layer.get(after, 0) | player


def _trace(layers: list[Layer], goals: int, stride: int) -> str:
    """The moves of one path from the first layer to a solved state of the last."""
    # Any player cell will do: all of them are equally many moves from the start.
    boxes, players = goals, layers[-1][goals]
    player = (players & -players).bit_length() - 1
    moves = ""
    for layer in layers[-2::-1]:
        move, boxes, player = _undo(layer, boxes, player, stride)
        moves += move
    return moves[::-1]


def _undo(layer: Layer, boxes: int, player: int, stride: int) -> tuple[str, int, int]:
    """A move that led from a state of `layer` to this one, and that state."""
    for move, change in deltas_of(stride).items():
        # Before a move the player was one cell back; a pushed box is now one cell ahead.
        before, pushed = player - change, 1 << player + change
        if layer.get(boxes, 0) >> before & 1:
            return move, boxes, before
        # A push: the box went from the player's cell to the one beyond.
        unpushed = boxes ^ pushed ^ 1 << player
        if boxes & pushed and layer.get(unpushed, 0) >> before & 1:
            return move, unpushed, before
    raise AssertionError("a state of a layer was reached from nowhere")


MIN_SIZE, MAX_SIZE, MAX_BOXES = 5, 16, 6

EXACT_PLACEMENTS = 8_000
"""Levels with at most this many placements of boxes are always certified as optimal: all of up
to 8x8 with 3 boxes, 16x16 with 1 box."""

ATTEMPTS, ATTEMPTS_WITH_RULES = 3_000, 10_000
"""Rooms that are tried before a request is refused; bounds the time of `generate`."""

MAX_GOALS = 16
"""Levels with rules that are made of one search."""


class Request(NamedTuple):
    """What a level should be; `checked` says what is possible."""

    rows: int
    cols: int
    num_boxes: int
    wall_ratio: float
    """Probability of a wall within the outer walls."""
    min_moves: int | None
    """Minimum length of the certified solution; None until `checked`, which says what it stands
    for."""
    max_moves: int | None
    """Maximum length of the certified solution; None as for `min_moves`."""
    split: str | None
    rules: int = 0
    """Rules that are drawn with each level; see `pettingllms_envs.terrain`."""

    def checked(self, budget: int) -> Request:
        """The request, in Python's numbers and with both lengths.

        The default minimum, 4 + 2 per box, keeps trivial levels out; boards below 6x6 have few of
        these, so it is lower there. The default maximum grows with boxes and size.

        Args:
            budget: Moves that an episode allows.

        Raises:
            InvalidArgument: If a value is out of its range.
            UnreachableRequest: If levels are asked for that an episode is too short for.
        """
        rows = check_whole("rows", self.rows, MIN_SIZE, MAX_SIZE)
        cols = check_whole("cols", self.cols, MIN_SIZE, MAX_SIZE)
        boxes = check_whole("boxes", self.num_boxes, 1, MAX_BOXES)
        cells = (rows - 2) * (cols - 2)
        wall_ratio = check_number("wall_ratio", self.wall_ratio, 0, 0.6)
        check_split(self.split)
        low, high = self.min_moves, self.max_moves
        if high is not None:
            high = check_whole("max_moves", high, 1)
        if low is None:
            low = min(max(2, 4 + 2 * boxes + 2 * min(0, rows + cols - 12)), budget)
            low = low if high is None else min(low, high)
        low = check_whole("min_moves", low, 1)
        if high is None:
            is_exact = is_small(cells, boxes)
            high = 4 * boxes + rows + cols - 1 if is_exact else 40 * boxes
            high = max(low, min(high, budget))
        high = check_whole("max_moves", high, low)
        if high > budget:
            raise UnreachableRequest(
                f"min_moves={low} and max_moves={high} ask for levels of more moves than the "
                f"{budget} of an episode; lower them, or raise max_turns or moves_per_turn"
            )
        rules = check_whole("rules", self.rules, 0, MAX_RULES)
        # Two keys at most, each found or not.
        if rules and 4 * cells * comb(cells, boxes) > MAX_STATES:
            raise UnreachableRequest(
                f"{rows}x{cols} levels with boxes={boxes} and rules={rules} may have more than "
                f"{MAX_STATES} states, too many for a certificate; ask for fewer boxes, a smaller "
                "board, or rules=0"
            )
        return Request(rows, cols, boxes, wall_ratio, low, high, self.split, rules)


def generate(rng: random.Random, request: Request) -> Level:
    """A random level in which no box starts on a goal.

    Small levels (`is_small`) have the certificate `"optimal"`: their number of moves is
    the exact length of a shortest solution, and is drawn uniformly from the requested range as far
    as the room allows. Larger ones are made by random play backwards and have the certificate
    `"reference"`: the number of moves is that of the solution found. Levels with rules are
    `"optimal"` too; see `_ruled` and `needs_thought`.

    Raises:
        UnreachableRequest: If none was found in so many rooms.
    """
    stride, low, high = request.cols + 1, request.min_moves, request.max_moves
    assert low is not None  # checked
    assert high is not None
    inside = board_mask(request.rows, request.cols)
    # A cell is inside if all four neighbours are on the board; the outer ring stays wall.
    inside &= inside >> 1 & inside << 1 & inside >> stride & inside << stride
    # Small remainders of a room would give the same few levels again and again.
    min_cells = max(inside.bit_count() // 2, 2 * request.num_boxes + 3)
    is_exact = is_small(inside.bit_count(), request.num_boxes)
    make = _ruled if request.rules else _optimal if is_exact else _reference
    attempts = ATTEMPTS_WITH_RULES if request.rules else ATTEMPTS
    for _ in range(attempts):
        walls = random_bits(rng, request.wall_ratio, request.rows * stride)
        floor, goals = _room(rng, inside & ~walls, request.num_boxes, min_cells, stride)
        for level in make(rng, request, range(low, high + 1), floor, goals) if goals else ():
            is_wanted = request.split in (None, split_of(canonical_form(level)))
            if is_wanted and (not level.rules or needs_thought(level)):
                return level
    raise UnreachableRequest(
        f"no {request.rows}x{request.cols} level with {request.num_boxes} boxes and "
        f"{low} to {high} moves and rules={request.rules} in {attempts} attempts; ask for fewer "
        "boxes, a larger board, fewer walls or another number of moves"
    )


def _room(
    rng: random.Random, free: int, num_boxes: int, min_cells: int, stride: int
) -> tuple[int, int]:
    """A connected floor and goals from which boxes can be pulled; (0, 0) if too small."""
    if free.bit_count() < min_cells:
        return 0, 0
    floor = flood(free, 1 << random_cell(rng, free), stride)
    places = 0
    # A goal needs two free cells in a line, one for the box and one for the player that pulls it.
    for shift in (1, stride):
        places |= floor & floor >> shift & floor >> 2 * shift
        places |= floor & floor << shift & floor << 2 * shift
    if floor.bit_count() < min_cells or places.bit_count() < num_boxes:
        return 0, 0
    goals = 0
    while goals.bit_count() < num_boxes:
        goals |= 1 << random_cell(rng, places)
    return floor, goals


def _optimal(
    rng: random.Random, request: Request, lengths: range, floor: int, goals: int
) -> list[Level]:
    """A level whose shortest solution has a random length in the range, if there is one.

    A room that does not hold the length drawn gives one of the longer half of what it holds.
    """
    wanted = rng.choice(lengths)
    # With all boxes on goals every player position is solved, so all are roots of the search. Small
    # levels: it is exhaustive, so no node limit is needed.
    solved, stride = {goals: floor & ~goals}, request.cols + 1
    found = layers_of_states(solved, floor, stride, is_backward=True)
    layers = list(islice(found, wanted + 1))
    if len(layers) <= lengths.start:
        return []
    if len(layers) <= wanted:
        wanted = rng.randrange((lengths.start + len(layers)) // 2, len(layers))
    starts = [(boxes, players) for boxes, players in layers[wanted].items() if not boxes & goals]
    if not starts:
        return []
    boxes, players = starts[rng.randrange(len(starts))]
    player = random_cell(rng, players)
    return [Level(request.rows, request.cols, floor, goals, boxes, player, "optimal", wanted)]


def _reference(
    rng: random.Random, request: Request, lengths: range, floor: int, goals: int
) -> list[Level]:
    """A level made by pulling all boxes off the goals, if its solution fits the range."""
    stride = request.cols + 1
    delta = deltas_of(stride)
    boxes, solution = goals, ""
    player = random_cell(rng, floor & ~goals)
    wanted = rng.choice(lengths)
    while len(solution) < wanted or boxes & goals:
        free = floor & ~boxes
        region = flood(free, 1 << player, stride)
        pulls = [
            (box, move)
            # Boxes on goals first: a level is done only when all of them have left.
            for box in cells_of(boxes & goals or boxes)
            for move in MOVES
            if region >> box - delta[move] & 1 and free >> box - 2 * delta[move] & 1
        ]
        if not pulls:
            return []
        box, move = rng.choice(pulls)
        beside, change = box - delta[move], delta[move]
        way = shortest_walk(free, beside, player, stride) or ""
        # Several pulls in a row make long pushes.
        for _ in range(rng.randint(1, 4)):
            if not floor & ~boxes & 1 << beside - change:
                break
            boxes ^= 1 << box | 1 << beside
            # The level is played backwards, so the latest pull is the first push. The last walk of
            # the play is dropped: after the final push the level is solved.
            solution, way = (move + way + solution, "") if solution else (move, "")
            box, beside = beside, beside - change
        player = beside
        # Back at the solved state: what was recorded so far solves nothing.
        if boxes == goals:
            solution = ""
        if len(solution) >= lengths.stop:
            return []
    board = (request.rows, request.cols, floor, goals, boxes, player)
    return [Level(*board, "reference", len(solution), solution)]


def _ruled(
    rng: random.Random, request: Request, lengths: range, floor: int, goals: int
) -> list[Level]:
    """Levels with drawn rules on a floor, at most `MAX_GOALS`, maybe none; `goals` are not used.

    Boxes and player get random places, and a search forwards from them finds goals: where all boxes
    are together for the first time after a number of moves in the range, off letters and off their
    first places, and with all keys found only. That number is the length of a shortest solution.
    """
    rows, cols, stride = request.rows, request.cols, request.cols + 1
    places = cells_of(floor)
    symbols, rules = drawn(rng, places, request.rules)
    plain = [cell for cell in places if cell not in symbols]
    if len(plain) <= request.num_boxes:
        return []
    *boxed, player = rng.sample(plain, request.num_boxes + 1)
    boxes = sum(1 << cell for cell in boxed)
    flat = [symbols.get(c, FREE if c in places else WALL) for c in range(rows * stride)]
    flat[cols::stride] = "\n" * rows
    cells = "".join(flat)[:-1]
    # No goals yet: they play no part in what moves do.
    level = Level(rows, cols, floor, 0, boxes, player, "optimal", cells=cells, rules=rules)
    keys = (1 << sum(key in flat for key in KEYS)) - 1
    first: dict[int, int] = {}
    barred = {boxes}
    for place, way in ways_from(level.start, RuledWarehouse(level).after).items():
        first.setdefault(place.boxes, len(way))
        if place.opened != keys:
            barred.add(place.boxes)
    avoided = boxes | sum(1 << cell for cell in symbols)
    found = [
        boxes
        for boxes, length in first.items()
        if length in lengths and not boxes & avoided and boxes not in barred
    ]
    chosen = rng.sample(found, min(len(found), MAX_GOALS))
    return [level._replace(goals=goals, num_moves=first[goals]) for goals in chosen]


def needs_thought(level: Level) -> bool:
    """Whether two short cuts fail.

    They are a shortest solution of the level without its rules, and any solution in which every
    push brings boxes nearer to goals.
    """
    house = warehouse_of(level)

    def after(here: Placement) -> Iterator[tuple[str, Placement]]:
        now = spread(level, here.boxes)
        for move, there in house.after(here):
            if there.boxes == here.boxes or spread(level, there.boxes) < now:
                yield move, there

    if any(place.boxes == level.goals for place in ways_from(level.start, after)):
        return False
    blind = Warehouse(level).solve(level.start, MAX_STATES)
    assert blind is not None  # rules only take moves away
    return house.play(level.start, blind)[0].boxes != level.goals


def canonical_form(level: Level) -> bytes:
    """What identifies the content of a level.

    It is equal for all rotations and reflections, for all positions of the player among which it
    can walk without pushing, and whatever lies beyond the floor (translation, thickness of walls).
    With rules, what letters mean counts, and the player's place and the outer walls count too.
    """
    stride = level.stride
    if level.rules:
        # A free cell is "." in `cells`, so a goal is G.
        marks = dict.fromkeys(cells_of(level.goals), "G")
        marks |= dict.fromkeys(cells_of(level.boxes), "$")
        marks |= dict.fromkeys(cells_of(level.boxes & level.goals), "*")
        marks[level.player] = "+" if level.goals >> level.player & 1 else "@"
        text = "".join(marks.get(cell, symbol) for cell, symbol in enumerate(level.cells))
        return canonical_terrain(text.split("\n")).encode()
    region = flood(level.floor & ~level.boxes, 1 << level.player, stride)
    places = [divmod(cell, stride) for cell in cells_of(level.floor)]
    top, left = min(row for row, _ in places), min(col for _, col in places)
    bottom, right = max(row for row, _ in places), max(col for _, col in places)
    rows = [["#"] * (right - left + 1) for _ in range(bottom - top + 1)]
    for row, col in places:
        bit = 1 << row * stride + col
        # Symbol legend: bit 0 goal, bit 1 box, bit 2 reachable by the player without a push.
        index = (level.goals & bit > 0) + 2 * (level.boxes & bit > 0) + 4 * (region & bit > 0)
        rows[row - top][col - left] = "abcdefgh"[index]
    return canonical(["".join(row) for row in rows]).encode()


def is_small(num_cells: int, num_boxes: int) -> bool:
    """Whether levels of so many floor cells and boxes are always certified as optimal."""
    return comb(num_cells, num_boxes) <= EXACT_PLACEMENTS


def certify(level: Level, line: int = 0) -> Level:
    """The level with the certificate `"optimal"` and its exact shortest length.

    Args:
        level: Any level.
        line: Number of its first line in a file, for errors.

    Raises:
        LevelFormatError: If the level has no solution.
        UnreachableRequest: If the search did not end within `NODE_LIMIT` nodes, which are enough
            for every small level (`is_small`) and most Boxoban levels.
    """
    solution = warehouse_of(level).solve(level.start, NODE_LIMIT)
    if solution is None:
        raise LevelFormatError("the level has no solution", line, 0, "levels that can be solved")
    return level._replace(certificate="optimal", num_moves=len(solution))
