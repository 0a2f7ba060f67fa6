"""The scripted policies, for every role.

Oracle plans, greedy reacts, random draws. The last two solve nothing and show what idling returns:
never-push walks to the cell of the highest potential, there-and-back walks there and home again.
"""

from __future__ import annotations

import random

from pettingllms.errors import UnreachableRequest
from pettingllms_envs.grid import MOVES, cells_of, deltas_of, flood, shortest_walk
from pettingllms_envs.sokoban.rules import Level, Placement, guide_of, planned, play, solve, step

ORACLE_NODES = 40_000
"""Search nodes of the oracle where no reference solution leads on."""


def moves_of(
    level: Level, place: Placement, policy: str, num_moves: int, rng: random.Random
) -> str:
    """The moves of a policy, at most `num_moves`.

    Oracle: see `oracle_moves`; greedy: see `greedy_moves`; random draws legal moves uniformly;
    never-push and there-and-back: see `idle_walk`.
    """
    if level.rules:
        return planned(level, place, policy, num_moves, rng)
    player, boxes, _ = place
    if policy == "oracle":
        found = oracle_moves(level, player, boxes)
        if found is not None:
            return found[:num_moves]
        policy = "greedy"
    if policy in ("never-push", "there-and-back"):
        return idle_walk(level, place, returns=policy == "there-and-back")[:num_moves]
    moves = greedy_moves if policy == "greedy" else random_moves
    return moves(level, player, boxes, num_moves, rng)


def oracle_moves(level: Level, player: int, boxes: int) -> str | None:
    """A solution, or None if the level is lost or too large to search.

    On the way of the level's reference solution, that; otherwise a shortest one.
    """
    delta, here, boxes_here = deltas_of(level.stride), level.player, level.boxes
    for index, move in enumerate(level.solution):
        if here == player and boxes_here == boxes:
            return level.solution[index:]
        here, boxes_here = step(level.floor, here, boxes_here, delta[move])
    if guide_of(level).pushes_left(boxes) < 0:
        return None
    try:
        return solve(level, player, boxes, guide_of(level).alive, ORACLE_NODES)
    except UnreachableRequest:
        return None


def idle_walk(level: Level, place: Placement, returns: bool) -> str:
    """The way, without a push, to the reachable cell of the highest potential.

    With `returns`, back to the player's first cell from any other.
    """
    player, boxes, _ = place
    free, guide = level.floor & ~boxes, guide_of(level)
    target = level.player
    if not returns or player == level.player:
        cells = cells_of(flood(free, 1 << player, level.stride))
        target = min(cells, key=lambda cell: guide.distance(cell, boxes))
    return shortest_walk(free, player, target, level.stride) or ""


def greedy_moves(level: Level, player: int, boxes: int, num_moves: int, rng: random.Random) -> str:
    """The moves of a reactive rule that plans nothing.

    Again and again it makes the nearest push that brings a box nearer, by Manhattan distance, to a
    goal without a box; without one in reach, a random move. It knows no walls and no dead ends.
    """
    delta, moves = deltas_of(level.stride), ""
    while len(moves) < num_moves and boxes != level.goals:
        free = level.floor & ~boxes
        ways = [
            way + move
            for cell, move in _approaches(level, boxes)
            if (way := shortest_walk(free, player, cell - delta[move], level.stride)) is not None
        ]
        more = min(ways, key=len) if ways else random_moves(level, player, boxes, 1, rng)
        if not more:
            break
        player, boxes, _, _, _ = play(level, player, boxes, more)
        moves += more
    return moves[:num_moves]


def _approaches(level: Level, boxes: int) -> list[tuple[int, str]]:
    """(cell of a box, move) of the legal pushes that bring a box nearer to an open goal."""
    free, delta = level.floor & ~boxes, deltas_of(level.stride)
    goals = [divmod(cell, level.stride) for cell in cells_of(level.goals & ~boxes)]

    def distance(cell: int) -> int:
        row, col = divmod(cell, level.stride)
        return min(abs(row - goal[0]) + abs(col - goal[1]) for goal in goals)

    return [
        (cell, move)
        for cell in cells_of(boxes & ~level.goals)
        for move in MOVES
        if free >> cell + delta[move] & 1
        and free >> cell - delta[move] & 1
        and distance(cell + delta[move]) < distance(cell)
    ]


def random_moves(level: Level, player: int, boxes: int, num_moves: int, rng: random.Random) -> str:
    """Legal moves drawn uniformly; fewer if the level gets solved or no move is legal."""
    delta, moves = deltas_of(level.stride), ""
    while len(moves) < num_moves and boxes != level.goals:
        options = [
            move
            for move in MOVES
            if step(level.floor, player, boxes, delta[move]) != (player, boxes)
        ]
        if not options:
            break
        move = rng.choice(options)
        moves += move
        player, boxes = step(level.floor, player, boxes, delta[move])
    return moves
