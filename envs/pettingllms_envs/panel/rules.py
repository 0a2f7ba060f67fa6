"""A question about numbers that experts know, and what the moderator has heard of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of

MIN_EXPERTS, MAX_EXPERTS = 2, 6
MAX_NEEDED = 4
MAX_KNOWN = 4
NAMES = "abcdefghijklmnopqrstuvwx"
"""Names of quantities, from the first on."""
MAX_LINKS = 4
_ATTEMPTS = 10_000


class Statement(NamedTuple):
    """What is said of a quantity: its value, or how it follows from another; a pass names none."""

    name: str
    """The quantity; empty for a pass."""
    value: int
    """The value of the quantity, or the number that is added to the other one."""
    other: str = ""
    """The quantity from which `name` follows; empty: none."""
    sign: int = 1
    """1 if the other quantity is added, -1 if it is taken away."""


class Level(NamedTuple):
    """Who knows what, and what is asked for."""

    values: tuple[tuple[tuple[str, int], ...], ...]
    """Expert -> (name, value) of each quantity of which this expert alone knows; values are from 0
    to 9, with links to 99."""
    needed: tuple[str, ...]
    """The quantities whose sum is asked for, all different."""
    links: tuple[tuple[str, str, int], ...] = ()
    """(name, other, sign) of each quantity of which nobody knows the value, but how it follows from
    another: sign * other + a number."""

    ADDED = ("links",)

    @property
    def true(self) -> dict[str, int]:
        """The value of every quantity."""
        return dict(pair for own in self.values for pair in own)

    @property
    def answer(self) -> int:
        """The sum that is asked for."""
        return sum(self.true[name] for name in self.needed)

    def fact(self, name: str) -> Statement:
        """What the expert of a quantity knows of it."""
        return _facts(self)[name]

    def facts(self, expert: int) -> list[Statement]:
        """What an expert knows."""
        facts = _facts(self)
        return [facts[name] for name, _ in self.values[expert]]

    def truths(self, name: str) -> tuple[Statement, Statement]:
        """What may be said of a quantity: what its expert knows, or its value if found."""
        return self.fact(name), Statement(name, self.true[name])

    def chain(self, name: str) -> list[str]:
        """A quantity, the one that it follows from, and so on to one that is known."""
        found = [name]
        while other := self.fact(found[-1]).other:
            found.append(other)
        return found

    @property
    def wanted(self) -> list[str]:
        """The quantities of which something must be said, those behind the links included."""
        return list(truths_wanted(self))

    @property
    def shortest(self) -> int:
        """Actions that are needed: the moderator and an expert for each quantity, and the answer.

        An expert states one quantity at a time, so that no fewer can do.
        """
        return 2 * len(self.wanted) + 1

    def owner(self, name: str) -> int:
        """The expert who knows a quantity."""
        return next(number for number, own in enumerate(self.values) if name in dict(own))


@lru_cache(maxsize=4096)
def _facts(level: Level) -> Mapping[str, Statement]:
    true = level.true
    facts = {name: Statement(name, value) for name, value in true.items()}
    for name, other, sign in level.links:
        facts[name] = Statement(name, true[name] - sign * true[other], other, sign)
    return facts


@lru_cache(maxsize=4096)
def truths_wanted(level: Level) -> Mapping[str, tuple[Statement, Statement]]:
    """What may be said of each quantity that is wanted; see `Level.wanted`."""
    return {one: level.truths(one) for name in level.needed for one in level.chain(name)}


class PanelState(NamedTuple):
    """The state of an episode."""

    level: Level
    """The question and who knows what; the same in all states of an episode."""
    actions_left: int
    """Actions of the episode that are left, those of experts included."""
    speaker: int = -1
    """The expert who has the floor; -1: the moderator."""
    request: str = ""
    """The quantity that the moderator has asked the speaker for."""
    board: tuple[tuple[str, int, int], ...] = ()
    """What was said: (name, value, expert), the last statement about each quantity."""
    links: tuple[tuple[str, str, int], ...] = ()
    """(name, other, sign) of those statements that say how a quantity follows from another."""

    ADDED = ("links",)

    @property
    def said(self) -> Mapping[str, Statement]:
        """The last statement about each quantity."""
        return _said(self.board, self.links)


@lru_cache(maxsize=4096)
def _said(
    board: tuple[tuple[str, int, int], ...], links: tuple[tuple[str, str, int], ...]
) -> Mapping[str, Statement]:
    # Both parts are plain values, so that states of levels without links stay what they were.
    values = {name: Statement(name, value) for name, value, _ in board}
    linked = {name: values[name]._replace(other=other, sign=sign) for name, other, sign in links}
    return values | linked


def missing(state: PanelState) -> tuple[int, int]:
    """The numbers of quantities of which nothing true has been said, and of those wanted."""
    said, truths = state.said, truths_wanted(state.level)
    return sum(said.get(name) not in true for name, true in truths.items()), len(truths)


def with_statement(state: PanelState, said: Statement) -> PanelState:
    """The state after the speaker's statement; the moderator has the floor again."""
    name, value, other, sign = said
    # The last word counts: an expert can correct what was said wrongly.
    board = tuple(entry for entry in state.board if entry[0] != name)
    links = tuple(link for link in state.links if link[0] != name)
    if other:
        links = (*links, (name, other, sign))
    board = (*board, (name, value, state.speaker))
    return PanelState(state.level, state.actions_left - 1, board=board, links=links)


class Request(NamedTuple):
    """Properties of the levels to generate; see the arguments of `PanelEnv` of the same names."""

    experts: int
    known: int
    needed: int
    split: str | None
    links: int = 0

    @property
    def wanted(self) -> int:
        """Of how many quantities something must be said."""
        return self.needed * (self.links + 1)

    def checked(self) -> Request:
        """The request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If more is needed than is known.
        """
        plain = self._replace(
            experts=check_whole("experts", self.experts, MIN_EXPERTS, MAX_EXPERTS),
            known=check_whole("known", self.known, 1, MAX_KNOWN),
            needed=check_whole("needed", self.needed, 1, MAX_NEEDED),
            links=check_whole("links", self.links, 0, MAX_LINKS),
        )
        check_split(self.split)
        if plain.wanted > plain.experts * plain.known:
            raise UnreachableRequest(
                f"needed={plain.needed} quantities are asked for, with links={plain.links} others "
                f"behind each, and experts={plain.experts} who have known={plain.known} each have "
                "fewer"
            )
        return plain


def generate(rng: random.Random, request: Request) -> Level:
    """A random level with the properties of a checked request.

    Raises:
        UnreachableRequest: If 10,000 levels held none of the split.
    """
    experts, known, needed, split, links = request
    for _ in range(_ATTEMPTS):
        # Names are dealt by chance: the same name is another expert's in another level.
        names = rng.sample(NAMES[: experts * known], experts * known)
        values = tuple(
            tuple(
                (name, rng.randrange(100 if links else 10))
                for name in sorted(names[at : at + known])
            )
            for at in range(0, len(names), known)
        )
        level = Level(values, tuple(rng.sample(names, needed)))
        # Neither what is read first nor what is to be found may be in two splits, so that both
        # decide: 1 of 100 levels is one of the test split.
        if split not in (None, split_of(content_of(level))):
            continue
        if links:
            level = _linked(rng, level, links)
        # A link within one expert's own quantities could be followed without a team-mate.
        if any(level.owner(name) == level.owner(other) for name, other, _ in level.links):
            continue
        if split in (None, split_of(canonical_form(level))):
            return level
    raise UnreachableRequest(
        f"{_ATTEMPTS} random levels held none with split={split!r}; raise experts={experts} or "
        f"known={known}: splits have different questions, of which there are too few"
    )


def _linked(rng: random.Random, level: Level, links: int) -> Level:
    """A level with a chain of links behind each quantity of the question.

    Half of the others are linked, too, so that links alone do not tell what is needed.
    """
    rest = sorted(set(level.true) - set(level.needed))
    rng.shuffle(rest)
    found: list[tuple[str, str, int]] = []
    for name in level.needed:
        chain = [name, *rest[:links]]
        del rest[:links]
        found += [(low, high, rng.choice((1, -1))) for low, high in pairwise(chain)]
    # Links lead to quantities that were reached before: no chain closes.
    reached = sorted(set(level.true) - set(rest))
    for name in rest[::2]:
        found.append((name, rng.choice(reached), rng.choice((1, -1))))
    return level._replace(links=tuple(sorted(found)))


def content_of(level: Level) -> bytes:
    """What the moderator reads first, in any order; decides the split, with `canonical_form`."""
    # Without the values: a prompt shows names alone, and must not occur in two splits.
    owned = sorted("".join(name for name, _ in own) for own in level.values)
    return f"{owned} {sorted(level.needed)}".encode()


def canonical_form(level: Level) -> bytes:
    """What identifies a level up to the names of quantities and the order of experts.

    What is left of an expert are the values that are known, which of them are needed, and the signs
    and values of the chains behind them.
    """
    true = level.true

    def code(name: str) -> str:
        _, _, other, sign = level.fact(name)
        # No chain closes, so that this ends; names are left out, and so are equal chains equal.
        link = f"{'+' if sign > 0 else '-'}{code(other)}" if other else ""
        return f"{true[name]}{'!' * (name in level.needed)}{link}"

    # Sorted within and between experts: neither order is seen by anybody who answers.
    experts = sorted(sorted(code(name) for name, _ in own) for own in level.values)
    return str(experts).encode()
