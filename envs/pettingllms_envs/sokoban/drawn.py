"""Levels with rules of their own: moves, exact distances, scripted policies.

Boxes slide on ice as players do. A push needs a player who could enter the cell of the box; the box
moves first, as far as it goes, and only the first step of a move pushes: a sliding player stops
before a box. Keys and doors are walls for boxes until they are free cells.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

from pettingllms_envs.grid import MOVES, UNREACHABLE, cells_of
from pettingllms_envs.reward import shaped
from pettingllms_envs.sokoban.rules import Level, Outlook, Placement, guide_of, outlook_of, play
from pettingllms_envs.sokoban.search import solve
from pettingllms_envs.state_search import MAX_STATES, distances_left, ways_from
from pettingllms_envs.terrain import FREE, KEYS, WALL, Terrain, canonical_terrain, drawn

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
        """Return the placement after one move, the same one if the move is illegal."""
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
        """Return what can be reached without a push, and the moves of a shortest way."""

        def after(here: Placement) -> Iterator[tuple[str, Placement]]:
            return (pair for pair in self.after(here) if pair[1].boxes == place.boxes)

        return ways_from(place, after)

    def distance(self, place: Placement) -> int:
        """Return the exact number of moves left, `UNREACHABLE` if the level is lost."""
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
    """Return how far a placement is from solved, by whatever rules the level has."""
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
    """Return levels with drawn rules on the floor of a board, at most `MAX_GOALS`, maybe none.

    Boxes and player get random places, and a search forwards from them finds goals: where all boxes
    are together for the first time after a number of moves in the range, off letters and off their
    first places, and with all keys found only. That number is the length of a shortest solution.

    Args:
        rng: The only source of chance.
        board: Its rows, columns and floor count.
        num_boxes: How many boxes.
        num_rules: How many rules.
        lengths: Lengths of a shortest solution, in moves.
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
    """Return whether two short cuts fail.

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
    """Return what identifies the content of a level with rules; see `canonical_form`."""
    # A free cell is "." in `cells`, so a goal is G.
    marks = dict.fromkeys(cells_of(level.goals), "G") | dict.fromkeys(cells_of(level.boxes), "$")
    marks |= dict.fromkeys(cells_of(level.boxes & level.goals), "*")
    marks[level.player] = "+" if level.goals >> level.player & 1 else "@"
    text = "".join(marks.get(cell, symbol) for cell, symbol in enumerate(level.cells))
    return canonical_terrain(text.split("\n")).encode()


# ---- scripted policies


def planned(level: Level, place: Placement, policy: str, num_moves: int, rng: random.Random) -> str:
    """Return the moves of a policy on a level with rules; see `policies.moves_of`."""
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
    """Return the moves of the nearest push that brings boxes nearer to goals, if there is one."""
    here = _spread(house.level, place.boxes)
    for at, way in house.walks(place).items():
        for move, following in house.after(at):
            if following.boxes != at.boxes and _spread(house.level, following.boxes) < here:
                return way + move
    return ""


def _spread(level: Level, boxes: int) -> int:
    """Return the sum of the boxes' Manhattan distances to their nearest goals."""
    goals = [divmod(goal, level.stride) for goal in cells_of(level.goals)]
    places = [divmod(box, level.stride) for box in cells_of(boxes)]
    return sum(min(abs(r - row) + abs(c - col) for row, col in goals) for r, c in places)
