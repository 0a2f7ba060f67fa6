"""Deals by chance, each certified to reach its target, and nothing outside its split."""

from __future__ import annotations

import random
from itertools import permutations
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.fireworks.policies import action_of
from pettingllms_envs.fireworks.rules import (
    COLOURS,
    MAX_FUSES,
    MAX_HAND,
    MAX_HINTS,
    MAX_PLAYERS,
    MAX_RANKS,
    MIN_PLAYERS,
    MIN_RANKS,
    FireworksState,
    Rules,
    after,
    deal,
    deck_of,
    ending,
)

ATTEMPTS = 500


class Request(NamedTuple):
    """The properties of the deals to generate."""

    rules: Rules
    max_actions: int
    """Actions within which the oracle must reach the target."""
    split: str | None

    def checked(self) -> Request:
        """Return the request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
            UnreachableRequest: If the hands take all cards, or the target is higher than the cards.
        """
        given = self.rules
        rules = Rules(
            check_whole("players", given.players, MIN_PLAYERS, MAX_PLAYERS),
            check_whole("colours", given.colours, 1, len(COLOURS)),
            check_whole("ranks", given.ranks, MIN_RANKS, MAX_RANKS),
            check_whole("hand", given.hand, 2, MAX_HAND),
            check_whole("hints", given.hints, 1, MAX_HINTS),
            check_whole("fuses", given.fuses, 1, MAX_FUSES),
            check_whole("target", given.target, 1),
        )
        check_split(self.split)
        dealt = rules.players * rules.hand
        if dealt >= rules.num_cards:
            raise UnreachableRequest(
                f"players={rules.players} with hand={rules.hand} hold {dealt} cards, and "
                f"colours={rules.colours} with ranks={rules.ranks} are {rules.num_cards}; "
                "at least one must be left to draw"
            )
        if rules.target > rules.colours * rules.ranks:
            raise UnreachableRequest(
                f"target={rules.target} is more than the {rules.colours * rules.ranks} of "
                f"colours={rules.colours} times ranks={rules.ranks}"
            )
        return Request(rules, self.max_actions, self.split)


def generate(rng: random.Random, request: Request) -> FireworksState:
    """Return the first state of a random deal with the requested properties.

    The certificate is a game: the one that the oracle plays, seeing all cards.

    Args:
        rng: The only source of chance.
        request: A checked request.

    Raises:
        UnreachableRequest: If the oracle won none of 500 deals.
    """
    deck = deck_of(request.rules)
    attempts = 0
    while attempts < ATTEMPTS:
        rng.shuffle(deck)
        start = deal(request.rules, tuple(deck))
        if request.split is not None and split_of(canonical_form(start)) != request.split:
            continue
        attempts += 1
        witness = witness_length(start)
        if 0 < witness <= request.max_actions:
            return start._replace(witness=witness)
    raise UnreachableRequest(
        f"the oracle won none of {ATTEMPTS} deals of {request.rules} within "
        f"{request.max_actions} actions; raise max_turns or hints, or lower target"
    )


def witness_length(start: FireworksState) -> int:
    """Return the number of actions in which the oracle wins a deal; -1 if it does not."""
    state, rng = start, random.Random(0)
    number = 0
    while not ending(state):
        state = after(state, action_of(state, "oracle", rng))
        number += 1
    return number if ending(state) == "won" else -1


def canonical_form(start: FireworksState) -> bytes:
    """Return what identifies a deal up to the names of colours and the order within first hands.

    Colours are named in the order in which they are drawn; those that are in hands alone in the
    order that makes the text the smallest.
    """
    drawn = tuple(dict.fromkeys(card.colour for card in start.deck[start.num_drawn :]))
    others = [colour for colour in range(start.rules.colours) if colour not in drawn]
    return min(_text(start, (*drawn, *order)) for order in permutations(others))


def _text(start: FireworksState, order: tuple[int, ...]) -> bytes:
    def named(colour: int, rank: int) -> str:
        return f"{order.index(colour)}{rank}"

    hands = [sorted(named(*held.card) for held in hand) for hand in start.hands]
    drawn = [named(*card) for card in start.deck[start.num_drawn :]]
    return f"{hands} {drawn}".encode()
