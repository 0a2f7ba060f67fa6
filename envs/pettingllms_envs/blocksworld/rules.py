"""The rules: stacks of blocks, moves, shortest plans, what two levels have in common."""

from __future__ import annotations

import heapq
from functools import lru_cache
from itertools import count, pairwise
from typing import NamedTuple, TypeAlias

Stacks: TypeAlias = tuple[str, ...]
"""Stacks in alphabetical order, each from bottom to top: `("AC", "B")`."""

TABLE = "-"
"""The destination of a move that starts a new stack."""

BLOCKS = "ABCDEFGHI"
"""Names of blocks; a level has the first few of them."""


class Level(NamedTuple):
    """Stacks to begin with and stacks to build."""

    start: Stacks
    goal: Stacks
    shortest: int
    """Length of a shortest plan, in moves."""


def table(stacks: list[str]) -> Stacks:
    """Return stacks in their order; empty ones are left out."""
    return tuple(sorted(filter(None, stacks)))


def after(stacks: Stacks, move: str) -> Stacks | None:
    """Return the stacks after a move, or None if it is illegal.

    Args:
        stacks: The stacks before it.
        move: The block and what it is put on, such as `"BA"` or `"B-"`. Both blocks must be the
            top of a stack; a block that is alone on the table cannot be put on the table.
    """
    block, onto = move
    rest = list(stacks)
    for stack in stacks:
        if stack[-1] == block:
            rest.remove(stack)
            break
    else:
        return None
    below = stack[:-1]
    if onto == TABLE:
        if not below:
            return None
        rest.append(block)
    else:
        for at, target in enumerate(rest):
            if target[-1] == onto:
                rest[at] = target + block
                break
        else:
            return None
    if below:
        rest.append(below)
    rest.sort()
    return tuple(rest)


def legal_moves(stacks: Stacks) -> list[str]:
    """Return all legal moves, in alphabetical order."""
    tops = [stack[-1] for stack in stacks]
    onto_others = [a + b for a in tops for b in tops if a != b]
    return sorted(onto_others + [stack[-1] + TABLE for stack in stacks if len(stack) > 1])


@lru_cache(maxsize=4096)
def foundations(goal: Stacks) -> dict[str, str]:
    """Return block -> the stack of the goal from the table up to that block."""
    return {stack[at]: stack[: at + 1] for stack in goal for at in range(len(stack))}


def moves_needed(stacks: Stacks, goal: Stacks) -> int:
    """Return a lower bound on the moves to the goal.

    A block that does not stand as in the goal moves at least once. It moves at least twice if a
    block that does not stand as in the goal is below it here and in the goal: it must make way
    for that block before it can be put on top of it.
    """
    below, bound = foundations(goal), 0
    for stack in stacks:
        if below[stack[-1]] == stack:
            continue  # all of it stands as in the goal
        misplaced: set[str] = set()
        for at, block in enumerate(stack):
            if misplaced or below[block] != stack[: at + 1]:
                bound += 1 if misplaced.isdisjoint(below[block]) else 2
                misplaced.add(block)
    return bound


@lru_cache(maxsize=16384)
def shortest_plan(start: Stacks, goal: Stacks) -> tuple[str, ...]:
    """Return a plan of minimum length, by A* with `moves_needed`.

    Source: Slaney and Thiebaux 2001, "Blocks World revisited"; a shortest plan is NP-hard to find
    in general, and takes milliseconds for the nine blocks that levels have at most.
    """
    tie = count()
    needed = {start: moves_needed(start, goal)}
    queue = [(needed[start], next(tie), start)]
    came_from: dict[Stacks, tuple[Stacks, str] | None] = {start: None}
    cost = {start: 0}
    while queue:
        estimate, _, stacks = heapq.heappop(queue)
        if stacks == goal:
            return _path(came_from, goal)
        if estimate > cost[stacks] + needed[stacks]:
            continue  # a shorter way to these stacks was found meanwhile
        for move in legal_moves(stacks):
            following = after(stacks, move)
            assert following is not None
            length = cost[stacks] + 1
            if length < cost.get(following, length + 1):
                cost[following], came_from[following] = length, (stacks, move)
                if following not in needed:
                    needed[following] = moves_needed(following, goal)
                bound = length + needed[following]
                # Later entries first: of equal estimates, deeper ones are nearer to the goal.
                heapq.heappush(queue, (bound, -next(tie), following))
    raise AssertionError("all stacks of the same blocks can be reached from one another")


def _path(came_from: dict[Stacks, tuple[Stacks, str] | None], goal: Stacks) -> tuple[str, ...]:
    moves: list[str] = []
    step = came_from[goal]
    while step is not None:
        moves.append(step[1])
        step = came_from[step[0]]
    return tuple(reversed(moves))


def canonical_form(level: Level) -> bytes:
    """Return what identifies the content of a level.

    It is equal for levels that differ in the names of blocks only, and for the level played
    backwards (every move can be undone), so that a split never holds the way back of another's.
    """
    forward = _code(level.start, level.goal)
    return min(forward, _code(level.goal, level.start)).encode()


def _code(start: Stacks, goal: Stacks) -> str:
    """Return the same text for all namings of the blocks, and for no other pair of stacks.

    A block has at most four neighbours, below and above it in start and goal. Walking from one
    block along these relations in a fixed order numbers all blocks connected to it without using
    their names; the smallest code over all first blocks identifies the connected part.
    """
    relations: list[dict[str, str]] = []
    for stacks in (start, goal):
        pairs = [pair for stack in stacks for pair in pairwise(stack)]
        relations += [dict(pairs), {high: low for low, high in pairs}]
    codes: dict[frozenset[str], str] = {}
    for first in "".join(start):
        order = [first]
        for block in order:
            for near in (r[block] for r in relations if block in r):
                if near not in order:
                    order.append(near)
        number = {block: at for at, block in enumerate(order)}
        links = (str(number.get(r.get(block, ""), "-")) for block in order for r in relations)
        part, code = frozenset(order), "".join(links)
        codes[part] = min(code, codes.get(part, code))
    return " ".join(sorted(codes.values()))
