"""The scripted policies, for every role.

Oracle plans, greedy reacts, random draws. The last two solve nothing and show what idling returns:
never-push walks to the cell of the highest potential, there-and-back walks there and home again.
"""

from __future__ import annotations

import random

from pettingllms.errors import UnreachableRequest
from pettingllms_envs.sokoban.rules import Level, Placement, Warehouse, warehouse_of

ORACLE_NODES = 40_000
"""Search nodes of the oracle where no reference solution leads on."""


def moves_of(
    level: Level, place: Placement, policy: str, num_moves: int, rng: random.Random
) -> str:
    """The moves of a policy, at most `num_moves`.

    Oracle: see `oracle_moves`, and where there are none as greedy, which again and again makes the
    nearest push that brings a box nearer to a goal, or a random move without one in reach; random
    draws legal moves uniformly; never-push and there-and-back: see `idle_walk`.
    """
    house, moves = warehouse_of(level), ""
    if policy in ("never-push", "there-and-back"):
        return idle_walk(house, place, returns=policy == "there-and-back")[:num_moves]
    if policy == "oracle":
        if (found := oracle_moves(house, place)) is not None:
            return found[:num_moves]
        policy = "greedy"
    while len(moves) < num_moves and (legal := dict(house.after(place))):
        more = house.nearest_push(place) if policy == "greedy" else ""
        more = more or rng.choice(list(legal))
        place, moves = house.play(place, more)[0], moves + more
    return moves[:num_moves]


def oracle_moves(house: Warehouse, place: Placement) -> str | None:
    """A solution, or None if the level is lost or too large to search.

    On the way of the level's reference solution, that; otherwise a shortest one.
    """
    here, solution = house.level.start, house.level.solution
    for index, move in enumerate(solution):
        if here == place:
            return solution[index:]
        here = house.step(here, move)
    try:
        # Lost levels would be searched in vain.
        return house.solve(place, ORACLE_NODES) if house.pushes_left(place) >= 0 else None
    except UnreachableRequest:
        return None


def idle_walk(house: Warehouse, place: Placement, returns: bool) -> str:
    """The way, without a push, to what has the highest potential of all that can be reached.

    With `returns`, back to the player's first cell from any other.
    """
    walks, home = house.walks(place), house.level.player
    if returns and place.player != home:
        return next((way for at, way in walks.items() if at.player == home), "")
    return walks[max(walks, key=lambda at: house.outlook(at).potential)]
