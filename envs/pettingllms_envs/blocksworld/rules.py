"""The rules: stacks of blocks, moves, shortest plans, what two levels have in common."""

from __future__ import annotations

import heapq
from functools import lru_cache
from itertools import count, pairwise
from typing import NamedTuple, cast

from pettingllms_envs.blocksworld.weights import TABLE, Stacks, Weights

_DIGITS = "0123456789ab"


class Level(NamedTuple):
    """Stacks to begin with and stacks to build."""

    start: Stacks
    goal: Stacks
    shortest: int
    """Length of a shortest plan, in moves."""
    weights: Weights | None = None
    """Rules drawn with the level; None: any top block can be moved anywhere."""

    ADDED = ("weights",)


def table(stacks: list[str]) -> Stacks:
    """Stacks in their order; empty ones are left out."""
    return tuple(sorted(filter(None, stacks)))


def after(stacks: Stacks, move: str, weights: Weights | None = None) -> Stacks | None:
    """The stacks after a move, or None if it is illegal.

    Args:
        stacks: The stacks before it.
        move: The block and what it is put on, such as `"BA"` or `"B-"`. Both blocks must be the
            top of a stack; a block that is alone on the table cannot be put on the table.
        weights: The rules of the level; with them a block moves with all that stands on it.
    """
    if weights is not None:
        return dict(weights.moves(stacks)).get(move)
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


def legal_moves(stacks: Stacks, weights: Weights | None = None) -> list[str]:
    """All legal moves, in alphabetical order."""
    if weights is not None:
        return sorted(move for move, _ in weights.moves(stacks))
    # In alphabetical order, so that equal seeds draw equal moves however stacks are stored.
    tops = [stack[-1] for stack in stacks]
    onto_others = [a + b for a in tops for b in tops if a != b]
    return sorted(onto_others + [stack[-1] + TABLE for stack in stacks if len(stack) > 1])


@lru_cache(maxsize=4096)
def foundations(goal: Stacks) -> dict[str, str]:
    """Block -> the stack of the goal from the table up to that block."""
    return {stack[at]: stack[: at + 1] for stack in goal for at in range(len(stack))}


def moves_needed(stacks: Stacks, goal: Stacks) -> int:
    """A lower bound on the moves to the goal.

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


def wrong_supports(stacks: Stacks, goal: Stacks) -> int:
    """How many blocks stand on something else than in the goal.

    It is a lower bound on the moves to the goal even if a move takes a block with all that stands
    on it: every move changes what one block stands on.
    """
    wanted = {block: stack[-2:-1] for block, stack in foundations(goal).items()}
    pairs = (pair for stack in stacks for pair in pairwise(["", *stack]))
    return sum(wanted[high] != low for low, high in pairs)


@lru_cache(maxsize=16384)
def shortest_plan(
    start: Stacks, goal: Stacks, weights: Weights | None = None, limit: int | None = None
) -> tuple[str, ...] | None:
    """A plan of minimum length, by A* with `moves_needed` or `wrong_supports`.

    Args:
        start: The stacks now.
        goal: The stacks to build, of the same blocks.
        weights: The rules of the level.
        limit: The most stacks to look at, for levels that are not certified yet.

    Returns:
        The plan; None if there is none, or the search came to its limit.

    Source: Slaney and Thiebaux 2001, "Blocks World revisited"; a shortest plan is NP-hard to find
    in general, and takes milliseconds for the blocks that levels have at most.
    """
    bound = moves_needed if weights is None else wrong_supports
    # Numbers between estimate and stacks, so that stacks are never compared.
    tie = count()
    needed = {start: bound(start, goal)}
    queue = [(needed[start], next(tie), start)]
    came_from: dict[Stacks, tuple[Stacks, str] | None] = {start: None}
    cost = {start: 0}
    while queue and (limit is None or len(cost) <= limit):
        estimate, _, stacks = heapq.heappop(queue)
        if stacks == goal:
            return _path(came_from, goal)
        if estimate > cost[stacks] + needed[stacks]:
            continue  # a shorter way to these stacks was found meanwhile
        length = cost[stacks] + 1
        for move, following in _moves(stacks, weights):
            if length < cost.get(following, length + 1):
                cost[following], came_from[following] = length, (stacks, move)
                if following not in needed:
                    needed[following] = bound(following, goal)
                # Later entries first: of equal estimates, deeper ones are nearer to the goal.
                heapq.heappush(queue, (length + needed[following], -next(tie), following))
    return None


def _moves(stacks: Stacks, weights: Weights | None) -> list[tuple[str, Stacks]]:
    if weights is not None:
        return weights.moves(stacks)
    return [(move, cast("Stacks", after(stacks, move))) for move in legal_moves(stacks)]


def distance(level: Level, stacks: Stacks) -> int:
    """The length of a shortest plan from stacks that the level leads to.

    Every move can be undone, so that there always is one.
    """
    plan = shortest_plan(stacks, level.goal, level.weights)
    assert plan is not None
    return len(plan)


def _path(came_from: dict[Stacks, tuple[Stacks, str] | None], goal: Stacks) -> tuple[str, ...]:
    moves: list[str] = []
    step = came_from[goal]
    while step is not None:
        moves.append(step[1])
        step = came_from[step[0]]
    return tuple(reversed(moves))


def canonical_form(level: Level) -> bytes:
    """What identifies the content of a level.

    It is equal for levels that differ in the names of blocks only, and for the level played
    backwards (every move can be undone), so that a split never holds the way back of another's.
    """
    start, goal, _, weights = level
    return min(_code(start, goal, weights), _code(goal, start, weights)).encode()


def _code(start: Stacks, goal: Stacks, weights: Weights | None) -> str:
    """The same text for all namings of the blocks, and for no other pair of stacks.

    A block has at most four neighbours, below and above it in start and goal. Walking from one
    block along these relations in a fixed order numbers all blocks connected to it without using
    their names; the smallest code over all first blocks identifies the connected part.
    """
    # Four relations: above and below, at the start and in the goal.
    relations: list[dict[str, str]] = []
    for stacks in (start, goal):
        pairs = [pair for stack in stacks for pair in pairwise(stack)]
        relations += [dict(pairs), {high: low for low, high in pairs}]
    codes: dict[frozenset[str], str] = {}
    # Every block of a part is tried as its first, since none of them is special.
    for first in "".join(start):
        order = [first]
        for block in order:
            for near in (r[block] for r in relations if block in r):
                if near not in order:
                    order.append(near)
        number = {block: _DIGITS[at] for at, block in enumerate(order)}
        links = "".join(number.get(r.get(one, ""), "-") for one in order for r in relations)
        # Parts that no relation connects may be named apart, so each has its own code.
        part, code = frozenset(order), links
        if weights is not None:
            code += " ".join(map(weights.pair, order))
        codes[part] = min(code, codes.get(part, code))
    limits = f" {weights.lift} {weights.places}" if weights else ""
    return " ".join(sorted(codes.values())) + limits
