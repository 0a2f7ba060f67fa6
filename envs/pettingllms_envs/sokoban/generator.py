"""Levels that can be solved, with a certificate of their length."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from math import comb
from typing import NamedTuple

from pettingllms.arguments import check_number, check_whole
from pettingllms.errors import LevelFormatError, UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.grid import (
    MOVES,
    board_mask,
    canonical,
    cells_of,
    deltas_of,
    flood,
    random_bits,
    random_cell,
    shortest_walk,
)
from pettingllms_envs.sokoban.rules import (
    NODE_LIMIT,
    WALL,
    Level,
    Placement,
    RuledWarehouse,
    Warehouse,
    layers_of_states,
    spread,
    warehouse_of,
)
from pettingllms_envs.state_search import MAX_STATES, ways_from
from pettingllms_envs.terrain import FREE, KEYS, MAX_RULES, canonical_terrain, drawn

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
