"""Levels by chance, each with the length of a shortest plan, and nothing outside its split."""

from __future__ import annotations

import random
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.splits import check_split, split_of
from pettingllms_envs.blocksworld.rules import (
    BLOCKS,
    Level,
    Stacks,
    canonical_form,
    shortest_plan,
    table,
)

MIN_BLOCKS, MAX_BLOCKS = 3, len(BLOCKS)
MIN_MOVES = 3
"""Default of `min_moves`: shorter levels are solved by luck."""
ATTEMPTS = 2_000


class Request(NamedTuple):
    """The properties of the levels to generate."""

    blocks: int
    min_moves: int
    max_moves: int
    split: str | None

    def checked(self) -> Request:
        """Return the request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If the values contradict one another.
        """
        plain = Request(
            check_whole("blocks", self.blocks, MIN_BLOCKS, MAX_BLOCKS),
            check_whole("min_moves", self.min_moves, 1),
            check_whole("max_moves", self.max_moves, 1),
            self.split,
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
    """Return stacks of blocks, each put at random on a stack or on the table."""
    stacks: list[str] = []
    for block in rng.sample(BLOCKS[:blocks], blocks):
        place = rng.randrange(len(stacks) + 1)
        if place == len(stacks):
            stacks.append(block)
        else:
            stacks[place] += block
    return table(stacks)


def generate(rng: random.Random, request: Request) -> Level:
    """Return a random level with the requested properties.

    The certificate is a shortest plan, found by A*.

    Args:
        rng: The only source of chance.
        request: A checked request.

    Raises:
        UnreachableRequest: If 2,000 pairs of stacks held no such level.
    """
    for _ in range(ATTEMPTS):
        start, goal = random_stacks(rng, request.blocks), random_stacks(rng, request.blocks)
        level = Level(start, goal, len(shortest_plan(start, goal)))
        if not request.min_moves <= level.shortest <= request.max_moves:
            continue
        if request.split is None or split_of(canonical_form(level)) == request.split:
            return level
    raise UnreachableRequest(
        f"{ATTEMPTS} random levels held none with blocks={request.blocks}, "
        f"min_moves={request.min_moves}, max_moves={request.max_moves}, split={request.split!r}; "
        "lower min_moves, raise max_moves, or choose another number of blocks"
    )
