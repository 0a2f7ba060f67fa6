"""The rules: stacks of blocks, weights, moves, shortest plans; levels by chance."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, islice, pairwise
from typing import NamedTuple, TypeAlias, cast

from pettingllms.arguments import check_flag, check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of

Stacks: TypeAlias = tuple[str, ...]
"""Stacks in alphabetical order, each from bottom to top: `("AC", "B")`."""

TABLE = "-"
"""The destination of a move that starts a new stack."""

BLOCKS = "ABCDEFGHIJKL"
"""Names of blocks; a level has the first few of them."""


class Weights(NamedTuple):
    """What the blocks of a level weigh and carry, and what can be lifted."""

    weight: tuple[int, ...]
    """Weight of A, B, ..., at least 1."""
    load: tuple[int, ...]
    """The most that may stand on A, B, ..., all together."""
    lift: int
    """The most that a move may lift: a block with all that stands on it."""
    places: int
    """The most stacks on the table."""

    def pair(self, block: str) -> str:
        """Weight and load of a block: `3/5`."""
        at = BLOCKS.index(block)
        return f"{self.weight[at]}/{self.load[at]}"

    def spare(self, stack: str) -> int:
        """What a stack carries on top of its blocks; below 0 if it breaks."""
        above, spare = 0, self.load[BLOCKS.index(stack[-1])]
        # From the top down, with the weight above known: one pass finds the weakest block.
        for block in reversed(stack):
            at = BLOCKS.index(block)
            spare = min(spare, self.load[at] - above)
            above += self.weight[at]
        return spare

    def hold(self, stacks: Stacks) -> bool:
        """Whether stacks keep the rules."""
        return len(stacks) <= self.places and all(self.spare(stack) >= 0 for stack in stacks)

    def moves(self, stacks: Stacks) -> list[tuple[str, Stacks]]:
        """All legal moves, each with the stacks after it."""
        found: list[tuple[str, Stacks]] = []
        spare = [self.spare(stack) for stack in stacks]
        for number, stack in enumerate(stacks):
            others = [*stacks[:number], *stacks[number + 1 :]]
            room = [*spare[:number], *spare[number + 1 :]]
            heavy = 0
            # Lifts grow downwards, so that the first one that is too heavy ends the search.
            for at in range(len(stack) - 1, -1, -1):
                heavy += self.weight[BLOCKS.index(stack[at])]
                if heavy > self.lift:
                    break
                below, lifted = stack[:at], stack[at:]
                left = [below] if below else []
                # A stack that is lifted whole would only come back to the table.
                if below and len(stacks) < self.places:
                    found.append((lifted[0] + TABLE, tuple(sorted([*others, below, lifted]))))
                for n, target in enumerate(others):
                    if room[n] >= heavy:
                        rest = [*others[:n], *others[n + 1 :], *left, target + lifted]
                        found.append((lifted[0] + target[-1], tuple(sorted(rest))))
        return found


MAX_WEIGHT, MAX_LOAD = 4, 9
WALK = 16
"""Random moves from one goal to the next."""
GOALS = 8
"""Goals that are tried with the same rules and start."""


def draws(rng: random.Random, blocks: int) -> Iterator[tuple[Weights, Stacks, Stacks]]:
    """Yield rules, a start, and a goal that is reached from it, without end."""
    while True:
        weight = tuple(rng.randint(1, MAX_WEIGHT) for _ in range(blocks))
        load = tuple(rng.randint(0, MAX_LOAD) for _ in range(blocks))
        lift = rng.randint(MAX_WEIGHT, MAX_WEIGHT + 3)
        weights = Weights(weight, load, lift, rng.randint(3, max(3, (blocks + 2) // 3)))
        built = _built(rng, weights)
        if built is not None:
            goal = start = _walked(rng, weights, built)
            # Rules and a start are dear to draw, and goals are cheap: several share them.
            for _ in range(GOALS):
                goal = _walked(rng, weights, goal)
                yield weights, start, goal


def _built(rng: random.Random, weights: Weights) -> Stacks | None:
    """Stacks that keep the rules; None where chance leaves no place for a block."""
    stacks: list[str] = []
    # Strong blocks first, more or less: stacks that begin with weak ones would break.
    for block in sorted(
        BLOCKS[: len(weights.load)], key=lambda b: 4 * rng.random() - weights.spare(b)
    ):
        grown = [
            (n, one + block) for n, one in enumerate(stacks) if weights.spare(one + block) >= 0
        ]
        if len(stacks) < weights.places:
            grown.append((len(stacks), block))
        if not grown:
            return None
        place, stack = rng.choice(grown)
        stacks[place : place + 1] = [stack]
    return tuple(sorted(stacks))


def _walked(rng: random.Random, weights: Weights, stacks: Stacks) -> Stacks:
    # A goal that moves lead to can be reached; one drawn freely seldom can.
    for _ in range(WALK):
        stacks = rng.choice(weights.moves(stacks) or [("", stacks)])[1]
    return stacks


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


MIN_BLOCKS, MAX_BLOCKS = 3, len(BLOCKS)
MIN_MOVES = 3
"""Default of `min_moves`: shorter levels are solved by luck."""
ATTEMPTS = 2_000
MAX_SEARCHED = 10_000
"""The most stacks that a search for a certificate looks at."""


class Request(NamedTuple):
    """Properties of the levels to generate; see the arguments of `BlocksworldEnv`."""

    blocks: int
    min_moves: int
    max_moves: int
    split: str | None
    weights: bool = False

    def checked(self) -> Request:
        """The request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If the values contradict one another.
        """
        plain = self._replace(
            blocks=check_whole("blocks", self.blocks, MIN_BLOCKS, MAX_BLOCKS),
            min_moves=check_whole("min_moves", self.min_moves, 1),
            max_moves=check_whole("max_moves", self.max_moves, 1),
            weights=check_flag("weights", self.weights),
        )
        check_split(self.split)
        # A plan that puts every block on the table and then builds the goal needs no more.
        longest = 2 * (plain.blocks - 1)
        if plain.min_moves > min(plain.max_moves, longest):
            raise UnreachableRequest(
                f"no level of blocks={plain.blocks} has at least min_moves={plain.min_moves} and "
                f"at most max_moves={plain.max_moves} moves; plans have at most {longest} moves, "
                "and max_moves is max_turns * moves_per_turn unless it is given"
            )
        return plain


def random_stacks(rng: random.Random, blocks: int) -> Stacks:
    """Stacks of blocks, each put at random on a stack or on the table."""
    stacks: list[str] = []
    for block in rng.sample(BLOCKS[:blocks], blocks):
        # The table is one place among the stacks, so that high and low stacks both come up.
        place = rng.randrange(len(stacks) + 1)
        if place == len(stacks):
            stacks.append(block)
        else:
            stacks[place] += block
    return table(stacks)


def generate(rng: random.Random, request: Request) -> Level:
    """A random level with the requested properties.

    The certificate is a shortest plan, found by A*.

    Raises:
        UnreachableRequest: If 2,000 pairs of stacks held no such level.
    """
    for level in islice(_drawn(rng, request), ATTEMPTS):
        # The cheap condition first: most levels belong to another split.
        if request.split not in (None, split_of(canonical_form(level))):
            continue
        limit = MAX_SEARCHED if request.weights else None
        plan = shortest_plan(level.start, level.goal, level.weights, limit)
        if plan is not None and request.min_moves <= len(plan) <= request.max_moves:
            return level._replace(shortest=len(plan))
    raise UnreachableRequest(
        f"{ATTEMPTS} random levels held none with blocks={request.blocks}, "
        f"weights={request.weights}, min_moves={request.min_moves}, "
        f"max_moves={request.max_moves}, split={request.split!r}; "
        "lower min_moves, raise max_moves, or choose another number of blocks"
    )


def _drawn(rng: random.Random, request: Request) -> Iterator[Level]:
    # Without end, so that the loop behind it is for levels without weights alone.
    if request.weights:
        for weights, start, goal in draws(rng, request.blocks):
            yield Level(start, goal, 0, weights)
    while True:
        start, goal = random_stacks(rng, request.blocks), random_stacks(rng, request.blocks)
        yield Level(start, goal, 0)
