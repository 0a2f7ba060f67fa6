"""Rules that are drawn with a level: weights and loads of blocks, the lift, the places."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

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
