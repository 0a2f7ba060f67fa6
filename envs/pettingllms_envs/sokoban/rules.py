"""Sokoban on bit-boards: levels, states, moves, and how far a placement of boxes is from solved.

Cells are numbered as `pettingllms_envs.grid` says; a set of cells is an int.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from pettingllms.errors import UnreachableRequest
from pettingllms_envs.grid import (
    MOVES,
    UNREACHABLE,
    board_mask,
    cells_of,
    deltas,
    deltas_of,
    layers,
)
from pettingllms_envs.reward import shaped
from pettingllms_envs.state_search import MAX_STATES, distances_left, ways_from
from pettingllms_envs.terrain import FREE, KEYS, Terrain, canonical_terrain, drawn

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
    """Player and boxes after a move that changes the cell number by `delta`, if it is legal."""
    target = player + delta
    bit = 1 << target
    if boxes & bit:
        beyond = 1 << target + delta
        if beyond & boxes or not beyond & floor:
            return player, boxes
        return target, boxes ^ bit ^ beyond
    return (target, boxes) if bit & floor else (player, boxes)


def play(level: Level, player: int, boxes: int, moves: str) -> tuple[int, int, str, int, int]:
    """Execute moves in order until all boxes are on goals; an illegal move changes nothing.

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
        """Pushes left (a lower bound) plus the way to the next useful push, below 1.

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
        """A lower bound of the pushes left, or -1 if the placement is certainly lost.

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
        """The cells from which a push that lowers the bound is 0, 1, 2, ... steps away."""
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


# The state itself holds nothing that is computed from the level: branches share the state, and what
# they could change in it would show in all of them.
guide_of = lru_cache(maxsize=512)(Guide)
"""Level -> its guide, made once."""


# What the proposer promises, the planner often does, and agents and branches share what they see.
@lru_cache(maxsize=4096)
def outlook_of(level: Level, player: int, boxes: int) -> Outlook:
    """How far a placement of player and boxes is from solved."""
    guide = guide_of(level)
    potential = shaped(guide.distance(player, boxes), guide.start)
    return Outlook(potential, guide.pushes_left(boxes), (boxes & level.goals).bit_count())


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


MAX_GOALS = 16
"""Levels that are made of one search."""


class Warehouse:
    """What moves do on one level, and what is left of it; derived from the level alone."""

    __slots__ = ("_left", "_terrain", "alive", "level")

    def __init__(self, level: Level) -> None:
        self.level = level
        self._terrain = Terrain(level.cells, level.cols)
        # What rules forbid beyond walls, so a box is lost by them where it is lost without them.
        self.alive = guide_of(level).alive if level.goals else -1
        self._left: dict[Placement, int] | None = None

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

    def after(self, place: Placement) -> Iterator[tuple[str, Placement]]:
        """Yield the legal moves and what they lead to; none from a solved or a dead placement."""
        is_over = place.boxes == self.level.goals or place.boxes & ~self.alive
        for move in "" if is_over else MOVES:
            if (following := self.step(place, move)) != place:
                yield move, following

    def walks(self, place: Placement) -> dict[Placement, str]:
        """What can be reached without a push, and the moves of a shortest way."""

        def after(here: Placement) -> Iterator[tuple[str, Placement]]:
            return (pair for pair in self.after(here) if pair[1].boxes == place.boxes)

        return ways_from(place, after)

    def distance(self, place: Placement) -> int:
        """The exact number of moves left, `UNREACHABLE` if the level is lost."""
        if self._left is None:
            level = self.level
            start = Placement(level.player, level.boxes)
            self._left = distances_left(start, self.after, lambda at: at.boxes == level.goals)
        return self._left.get(place, UNREACHABLE)

    def play(self, place: Placement, moves: str) -> tuple[Placement, str, int, int]:
        """Execute moves until the level is solved; see `play_at`."""
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


# All distances of a level are kept, so only those of a few levels.
warehouse_of = lru_cache(maxsize=32)(Warehouse)
"""Level with rules -> its warehouse, made once."""


def outlook_at(level: Level, place: Placement) -> Outlook:
    """How far a placement is from solved, by whatever rules the level has."""
    if not level.rules:
        return outlook_of(level, place.player, place.boxes)
    distance = warehouse_of(level).distance(place)
    num_home = (place.boxes & level.goals).bit_count()
    pushes_left = level.goals.bit_count() - num_home if distance >= 0 else UNREACHABLE
    return Outlook(shaped(distance, level.num_moves), pushes_left, num_home)


def play_at(level: Level, place: Placement, moves: str) -> tuple[Placement, str, int, int]:
    """Execute moves by whatever rules the level has.

    Returns:
        The placement afterwards, the legal moves, the number of illegal ones, and that of pushes.
    """
    if level.rules:
        return warehouse_of(level).play(place, moves)
    player, boxes, executed, num_illegal, num_pushes = play(level, place.player, place.boxes, moves)
    return Placement(player, boxes), executed, num_illegal, num_pushes


# ---- levels


def with_rules(
    rng: random.Random, board: Level, num_boxes: int, num_rules: int, lengths: range
) -> list[Level]:
    """Levels with drawn rules on the floor of a board, at most `MAX_GOALS`, maybe none.

    Boxes and player get random places, and a search forwards from them finds goals: where all boxes
    are together for the first time after a number of moves in the range, off letters and off their
    first places, and with all keys found only. That number is the length of a shortest solution.
    """
    places = cells_of(board.floor)
    symbols, rules = drawn(rng, places, num_rules)
    plain = [cell for cell in places if cell not in symbols]
    if len(plain) <= num_boxes:
        return []
    *boxed, player = rng.sample(plain, num_boxes + 1)
    start = Placement(player, sum(1 << cell for cell in boxed))
    flat = [symbols.get(c, FREE if c in places else WALL) for c in range(board.rows * board.stride)]
    flat[board.cols :: board.stride] = "\n" * board.rows
    level = board._replace(
        boxes=start.boxes,
        player=player,
        certificate="optimal",
        cells="".join(flat)[:-1],
        rules=rules,
    )
    keys = (1 << sum(key in flat for key in KEYS)) - 1
    first: dict[int, int] = {}
    barred = {start.boxes}
    for place, way in ways_from(start, Warehouse(level).after).items():
        first.setdefault(place.boxes, len(way))
        if place.opened != keys:
            barred.add(place.boxes)
    avoided = start.boxes | sum(1 << cell for cell in symbols)
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
    house, start = warehouse_of(level), Placement(level.player, level.boxes)

    def after(here: Placement) -> Iterator[tuple[str, Placement]]:
        now = _spread(level, here.boxes)
        for move, there in house.after(here):
            if there.boxes == here.boxes or _spread(level, there.boxes) < now:
                yield move, there

    if any(place.boxes == level.goals for place in ways_from(start, after)):
        return False
    blind = solve(level, level.player, level.boxes, guide_of(level).alive, MAX_STATES)
    assert blind is not None  # rules only take moves away
    return house.play(start, blind)[0].boxes != level.goals


def ruled_form(level: Level) -> bytes:
    """What identifies the content of a level with rules; see `canonical_form`."""
    # A free cell is "." in `cells`, so a goal is G.
    marks = dict.fromkeys(cells_of(level.goals), "G") | dict.fromkeys(cells_of(level.boxes), "$")
    marks |= dict.fromkeys(cells_of(level.boxes & level.goals), "*")
    marks[level.player] = "+" if level.goals >> level.player & 1 else "@"
    text = "".join(marks.get(cell, symbol) for cell, symbol in enumerate(level.cells))
    return canonical_terrain(text.split("\n")).encode()


# ---- scripted policies


def planned(level: Level, place: Placement, policy: str, num_moves: int, rng: random.Random) -> str:
    """The moves of a policy on a level with rules; see `policies.moves_of`."""
    house, moves = warehouse_of(level), ""
    if policy in ("never-push", "there-and-back"):
        return _idle_walk(house, place, policy == "there-and-back")[:num_moves]
    while len(moves) < num_moves and (legal := dict(house.after(place))):
        more = ""
        if policy == "oracle":
            left = house.distance(place)
            better = (move for move, at in legal.items() if house.distance(at) == left - 1)
            more = next(better, "") if left > 0 else ""
            if not more:
                break
        elif policy == "greedy":
            more = _nearest_push(house, place)
        more = more or rng.choice(list(legal))
        place, moves = house.play(place, more)[0], moves + more
    return moves[:num_moves]


def _idle_walk(house: Warehouse, place: Placement, returns: bool) -> str:
    walks, level = house.walks(place), house.level
    if returns and place.player != level.player:
        return next((way for at, way in walks.items() if at.player == level.player), "")
    far = len(house.level.cells) ** 2
    return walks[min(walks, key=lambda at: house.distance(at) % far)]


def _nearest_push(house: Warehouse, place: Placement) -> str:
    """The moves of the nearest push that brings boxes nearer to goals, if there is one."""
    here = _spread(house.level, place.boxes)
    for at, way in house.walks(place).items():
        for move, following in house.after(at):
            if following.boxes != at.boxes and _spread(house.level, following.boxes) < here:
                return way + move
    return ""


def _spread(level: Level, boxes: int) -> int:
    """The sum of the boxes' Manhattan distances to their nearest goals."""
    goals = [divmod(goal, level.stride) for goal in cells_of(level.goals)]
    places = [divmod(box, level.stride) for box in cells_of(boxes)]
    return sum(min(abs(r - row) + abs(c - col) for row, col in goals) for r, c in places)


Layer = dict[int, int]
"""Boxes -> bit-board of the player's cells."""

NODE_LIMIT = 300_000
"""Maximum number of (boxes, layer) pairs that `solve` looks at."""


def solve(
    level: Level, player: int, boxes: int, alive: int, node_limit: int = NODE_LIMIT
) -> str | None:
    """A shortest solution, as letters, or None if there is none.

    Boxes enter only the `alive` cells, from which a single one can reach some goal.

    Raises:
        UnreachableRequest: If the search did not end within `node_limit` nodes.
    """
    floor, goals, stride = level.floor, level.goals, level.stride
    # Every layer is kept: `_trace` walks back through them, so no state needs a parent pointer.
    # `seen[boxes]` has the player cells already visited with these boxes, in any layer.
    layers: list[Layer] = [{boxes: 1 << player}]
    seen: Layer = dict(layers[0])
    nodes = 0
    while goals not in layers[-1]:
        layer: Layer = {}
        for here, players in layers[-1].items():
            _advance(layer, seen, here, players, floor & ~here, alive, stride)
        nodes += len(layers[-1])
        if not layer:
            return None
        if nodes > node_limit:
            raise UnreachableRequest(
                f"a {level.rows}x{level.cols} level with {goals.bit_count()} boxes was not solved "
                f"within {node_limit} search nodes"
            )
        layers.append(layer)
    return _trace(layers, goals, stride)


def _advance(
    layer: Layer, seen: Layer, boxes: int, players: int, free: int, alive: int, stride: int
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
    # A box is pushed only if the cell opposite of the player is floor, free and not dead.
    touched, targets = spread & boxes, free & alive
    while touched:
        box = touched & -touched
        touched ^= box
        for beside, pushed in (
            (box >> 1, box << 1),
            (box << 1, box >> 1),
            (box >> stride, box << stride),
            (box << stride, box >> stride),
        ):
            # `beside` is where the player must come from, `pushed` where the box goes: opposite
            # sides of the box. The player ends on the box's old cell, so `box` is its new position.
            if beside & players and pushed & targets:
                after = boxes ^ box ^ pushed
                known = seen.get(after, 0)
                if not known & box:
                    seen[after] = known | box
                    layer[after] = layer.get(after, 0) | box


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
    for move, change in deltas(stride).items():
        # Before a move the player was one cell back; a pushed box is now one cell ahead.
        before, pushed = player - change, 1 << player + change
        if layer.get(boxes, 0) >> before & 1:
            return move, boxes, before
        # A push: the box went from the player's cell to the one beyond.
        unpushed = boxes ^ pushed ^ 1 << player
        if boxes & pushed and layer.get(unpushed, 0) >> before & 1:
            return move, unpushed, before
    raise AssertionError("a state of a layer was reached from nowhere")


def backward_layers(
    floor: int, goals: int, stride: int, depth: int, node_limit: int = NODE_LIMIT
) -> list[Layer]:
    """The states from which the level is solved in exactly 0, 1, 2, ... moves.

    A breadth-first search backwards (by pulling) from all solved states, so that the index of a
    layer is the exact length of a shortest solution of its states. It ends with the layer `depth`,
    when there are no more states, or early after `node_limit` (boxes, layer) pairs.
    """
    # With all boxes on goals every player position is solved, so all are roots of the search.
    layers: list[Layer] = [{goals: floor & ~goals}]
    seen: Layer = dict(layers[0])
    nodes = 0
    while len(layers) <= depth and nodes <= node_limit:
        layer: Layer = {}
        for boxes, players in layers[-1].items():
            _retreat(layer, seen, boxes, players, floor & ~boxes, stride)
        nodes += len(layers[-1])
        if not layer:
            break
        layers.append(layer)
    return layers


def _retreat(layer: Layer, seen: Layer, boxes: int, players: int, free: int, stride: int) -> None:
    """Add to `layer` what one move backwards leads to and was not `seen`."""
    spread = players << 1 | players >> 1 | players << stride | players >> stride
    known = seen[boxes]
    walked = spread & free & ~known
    if walked:
        seen[boxes] = known | walked
        layer[boxes] = layer.get(boxes, 0) | walked
    # A pull reverses a push: box and player both step back, so two cells in a line beyond the box
    # must be free. Dead cells need no test: what was pulled can be pushed back.
    touched = spread & boxes
    while touched:
        box = touched & -touched
        touched ^= box
        for beside, behind in (
            (box << 1, box << 2),
            (box >> 1, box >> 2),
            (box << stride, box << 2 * stride),
            (box >> stride, box >> 2 * stride),
        ):
            if beside & players and behind & free:
                before = boxes ^ box ^ beside
                known = seen.get(before, 0)
                if not known & behind:
                    seen[before] = known | behind
                    layer[before] = layer.get(before, 0) | behind
