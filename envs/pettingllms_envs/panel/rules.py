"""A question about numbers that experts know, and what the moderator has heard of them."""

from __future__ import annotations

import random
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.splits import check_split, split_of

MIN_EXPERTS, MAX_EXPERTS = 2, 6
MAX_NEEDED = 4
MAX_KNOWN = 4
NAMES = "abcdefghijklmnopqrstuvwx"
"""Names of quantities, from the first on."""
_ATTEMPTS = 2_000


class Level(NamedTuple):
    """Who knows what, and what is asked for."""

    values: tuple[tuple[tuple[str, int], ...], ...]
    """Expert -> (name, value from 0 to 9) of each quantity that this expert alone knows."""
    needed: tuple[str, ...]
    """The quantities whose sum is asked for, all different."""

    @property
    def answer(self) -> int:
        """The sum that is asked for."""
        known = dict(pair for own in self.values for pair in own)
        return sum(known[name] for name in self.needed)

    @property
    def shortest(self) -> int:
        """Actions that are needed: the moderator and an expert for each quantity, and the answer.

        An expert states one quantity at a time, so that no fewer can do.
        """
        return 2 * len(self.needed) + 1

    def owner(self, name: str) -> int:
        """Return the expert who knows a quantity."""
        return next(number for number, own in enumerate(self.values) if name in dict(own))


class PanelState(NamedTuple):
    """The state of an episode."""

    level: Level
    actions_left: int
    """Actions of the episode that are left, those of experts included."""
    speaker: int = -1
    """The expert who has the floor; -1: the moderator."""
    request: str = ""
    """The quantity that the moderator has asked the speaker for."""
    board: tuple[tuple[str, int, int], ...] = ()
    """What was said: (name, value, expert), the last statement about each quantity."""


def missing(state: PanelState) -> int:
    """Return how many quantities of the question have not been stated, or wrongly."""
    stated = {name: value for name, value, _ in state.board}
    known = dict(pair for own in state.level.values for pair in own)
    return sum(stated.get(name) != known[name] for name in state.level.needed)


def with_statement(state: PanelState, name: str, value: int) -> PanelState:
    """Return the state after the speaker's statement; the moderator has the floor again."""
    others = tuple(entry for entry in state.board if entry[0] != name)
    board = (*others, (name, value, state.speaker))
    return PanelState(state.level, state.actions_left - 1, board=board)


class Request(NamedTuple):
    """The properties of the levels to generate."""

    experts: int
    known: int
    needed: int
    split: str | None

    def checked(self) -> Request:
        """Return the request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If more is needed than is known.
        """
        plain = Request(
            check_whole("experts", self.experts, MIN_EXPERTS, MAX_EXPERTS),
            check_whole("known", self.known, 1, MAX_KNOWN),
            check_whole("needed", self.needed, 1, MAX_NEEDED),
            self.split,
        )
        check_split(self.split)
        if plain.needed > plain.experts * plain.known:
            raise UnreachableRequest(
                f"needed={plain.needed} quantities are asked for, and experts={plain.experts} who "
                f"have known={plain.known} each have fewer"
            )
        return plain


def generate(rng: random.Random, request: Request) -> Level:
    """Return a random level with the requested properties.

    Args:
        rng: The only source of chance.
        request: A checked request.

    Raises:
        UnreachableRequest: If 2,000 levels held none of the split.
    """
    experts, known, needed, split = request
    for _ in range(_ATTEMPTS):
        names = rng.sample(NAMES[: experts * known], experts * known)
        values = tuple(
            tuple((name, rng.randrange(10)) for name in sorted(names[at : at + known]))
            for at in range(0, len(names), known)
        )
        level = Level(values, tuple(rng.sample(names, needed)))
        if split is None or split_of(content_of(level)) == split:
            return level
    raise UnreachableRequest(
        f"{_ATTEMPTS} random levels held none with split={split!r}; raise experts={experts} or "
        f"known={known}: splits have different questions, of which there are too few"
    )


def content_of(level: Level) -> bytes:
    """Return what decides the split of a level: what the moderator reads first, in any order."""
    owned = sorted("".join(name for name, _ in own) for own in level.values)
    return f"{owned} {sorted(level.needed)}".encode()


def canonical_form(level: Level) -> bytes:
    """Return what identifies a level up to the names of quantities and the order of experts.

    What is left of an expert are the values that are known, and which of them are needed.
    """
    experts = sorted(
        sorted(f"{value}{'!' * (name in level.needed)}" for name, value in own)
        for own in level.values
    )
    return str(experts).encode()
