"""Targets by chance, each certified to be describable, and nothing outside its split."""

from __future__ import annotations

import random
from itertools import product
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.relay.policies import fills_of, message_of
from pettingllms_envs.relay.rules import (
    Board,
    Fill,
    Level,
    RelayState,
    Said,
    blank,
    canonical_form,
    painted,
)
from pettingllms_envs.relay.text import COLOURS, SHAPES

MIN_SIZE, MAX_SIZE = 2, 20
MAX_SYMBOLS = 6
MAX_FIGURES = 12
MAX_CHARS = 200
ATTEMPTS = 2_000
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SIDE = 3
"""Colours and shapes of a palette, at least: some symbols share a colour, some a shape."""


class Request(NamedTuple):
    """The properties of the levels to generate."""

    size: int
    symbols: int
    figures: int
    max_chars: int
    max_turns: int
    is_terse: bool
    split: str | None

    def checked(self) -> Request:
        """Return the request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
        """
        check_split(self.split)
        return self._replace(
            size=check_whole("size", self.size, MIN_SIZE, MAX_SIZE),
            symbols=check_whole("symbols", self.symbols, 1, MAX_SYMBOLS),
            figures=check_whole("figures", self.figures, 1, MAX_FIGURES),
            max_chars=check_whole("max_chars", self.max_chars, 1, MAX_CHARS),
        )


def generate(rng: random.Random, request: Request) -> Level:
    """Return a random level with the requested properties.

    Rectangles are painted over one another; of each a part is seen in the end. The certificate is
    an episode: that of the oracle, whose messages keep the limits.

    Args:
        rng: The only source of chance.
        request: A checked request.

    Raises:
        UnreachableRequest: If 2,000 levels held none.
    """
    for _ in range(ATTEMPTS):
        fills = tuple(_any_fill(rng, request) for _ in range(request.figures))
        target = painted(blank(request.size), *fills)
        if not _all_seen(fills, target):
            continue
        if request.split is not None and split_of(canonical_form(target)) != request.split:
            continue
        letters = "".join(rng.sample(_LETTERS, 2 * request.symbols))
        level = Level(
            target,
            fills,
            _palette(rng, request.symbols),
            letters[: request.symbols],
            letters[request.symbols :],
            turns_needed=0,
        )
        turns = turns_needed(level, request)
        if turns:
            return level._replace(turns_needed=turns)
    raise UnreachableRequest(
        f"{ATTEMPTS} random targets held none that can be described: {request}; raise max_chars, "
        "max_turns or size, or lower figures"
    )


def turns_needed(level: Level, request: Request) -> int:
    """Return the turns in which the oracle builds the target; 0 if it does not in time."""
    rng = random.Random(0)
    state = RelayState(level, blank(len(level.target)))
    for turn in range(1, request.max_turns + 1):
        said = message_of(state, "oracle", rng, request.max_chars, request.is_terse)
        state = state._replace(messages=(Said(is_builder=False, text=said),))
        state = state._replace(board=painted(state.board, *fills_of(state, "oracle", rng)))
        if state.board == level.target:
            return turn
    return 0


def _any_fill(rng: random.Random, request: Request) -> Fill:
    rows, columns = (sorted(rng.choices(range(request.size), k=2)) for _ in range(2))
    return Fill(rng.randint(1, request.symbols), rows[0], columns[0], rows[1], columns[1])


def _all_seen(fills: tuple[Fill, ...], target: Board) -> bool:
    """Return whether without any one of the rectangles the board would be another one."""
    start = blank(len(target))
    others = (fills[:at] + fills[at + 1 :] for at in range(len(fills)))
    return target != start and all(painted(start, *one) != target for one in others)


def _palette(rng: random.Random, symbols: int) -> tuple[tuple[str, str], ...]:
    """Return different pairs of colour and shape, with words that are drawn for the level."""
    side = max(_SIDE, symbols // 2)
    pairs = list(product(rng.sample(COLOURS, side), rng.sample(SHAPES, side)))
    return tuple(rng.sample(pairs, symbols))
