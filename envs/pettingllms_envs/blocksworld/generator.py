"""Levels by chance, each with the length of a shortest plan, and nothing outside its split."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from pettingllms.arguments import check_flag, check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.blocksworld.rules import Level, canonical_form, shortest_plan, table
from pettingllms_envs.blocksworld.weights import BLOCKS, Stacks, draws

MIN_BLOCKS, MAX_BLOCKS = 3, len(BLOCKS)
MIN_MOVES = 3
"""Default of `min_moves`: shorter levels are solved by luck."""
ATTEMPTS = 2_000
MAX_SEARCHED = 10_000
"""The most stacks that a search for a certificate looks at."""


class Request(NamedTuple):
    """The properties of the levels to generate."""

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
        plain = Request(
            check_whole("blocks", self.blocks, MIN_BLOCKS, MAX_BLOCKS),
            check_whole("min_moves", self.min_moves, 1),
            check_whole("max_moves", self.max_moves, 1),
            self.split,
            check_flag("weights", self.weights),
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
