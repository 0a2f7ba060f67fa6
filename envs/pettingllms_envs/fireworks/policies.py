"""The scripted policies of a player."""

from __future__ import annotations

import random
from itertools import product

from pettingllms_envs.fireworks.rules import (
    HIDDEN,
    Action,
    Card,
    Discard,
    FireworksState,
    Held,
    Hint,
    Play,
    actions_of,
    copies,
    fault_of,
    hidden_from,
    is_playable,
    touched,
)


def action_of(state: FireworksState, policy: str, rng: random.Random) -> Action:
    """Return what the present player does.

    Args:
        state: The state.
        policy: `"oracle"`: sees all cards, the deck too; `"conventions"`: sees what a player sees,
            and takes a hint as a sign to play (`_by_conventions`); `"greedy"`: never hints, plays
            the oldest card while a fuse may burn, then discards the oldest; `"random"`: anything
            that is possible.
        rng: Source of chance.
    """
    if policy == "oracle":
        return _seeing_all(state)
    if policy == "conventions":
        return _by_conventions(hidden_from(state, state.player))
    if policy == "random":
        return rng.choice(actions_of(state))
    may_discard = state.fuses == 1 and not fault_of(state, Discard(0))
    return Discard(0) if may_discard else Play(0)


# What all cards show --------------------------------------------------------------------------


def _seeing_all(state: FireworksState) -> Action:
    """Play what fits, lowest first; else discard what is useless, hint, or discard what is spare.

    It discards only as long as the deck leaves a turn for each card that is missing.
    """
    hand = [held.card for held in state.hands[state.player]]
    fitting = [slot for slot, card in enumerate(hand) if is_playable(state, card)]
    if fitting:
        return Play(min(fitting, key=lambda slot: hand[slot].rank))
    is_full = state.hints == state.rules.hints
    missing = state.rules.target - state.score
    has_time = missing < state.num_left + state.rules.players
    useless = [
        slot
        for slot, card in enumerate(hand)
        if card.rank <= state.stacks[card.colour] or hand.index(card) < slot
    ]
    if useless and not is_full and (has_time or not state.hints):
        return Discard(useless[0])
    hints = [action for action in actions_of(state) if isinstance(action, Hint)]
    if hints:
        return hints[0]
    return Discard(max(range(len(hand)), key=lambda slot: _spare(state, hand[slot])))


def _spare(state: FireworksState, card: Card) -> tuple[bool, int]:
    """Return how little a card is missed: whether there is another one, and its rank."""
    held = sum(one.card == card for hand in state.hands for one in hand)
    return held + state.deck[state.num_drawn :].count(card) > 1, card.rank


# What a player sees ---------------------------------------------------------------------------


def _by_conventions(view: FireworksState) -> Action:
    """Play, hint, discard, in this order, as a team that has agreed on what a hint says.

    A hint says: the first card it points at that may fit does fit. So whoever was told plays that
    card, and nobody hints where it would not fit. Cards that no hint has pointed at are discarded,
    the oldest first.

    Args:
        view: What the present player sees.
    """
    hand = view.hands[view.player]
    sure = [slot for slot, held in enumerate(hand) if _surely(view, held, fits=True)]
    meant = _meant(view, view.player)
    if sure or meant is not None:
        return Play(sure[0] if meant is None else meant)
    hints = [action for action in actions_of(view) if isinstance(action, Hint)]
    useful = [hint for hint in hints if _is_sign(view, hint)]
    if useful:
        return max(useful, key=lambda hint: _worth(view, hint))
    if view.hints < view.rules.hints:
        useless = [slot for slot, held in enumerate(hand) if _surely(view, held, fits=False)]
        unhinted = [slot for slot, held in enumerate(hand) if not held.is_hinted]
        return Discard([*useless, *unhinted, 0][0])
    # Nothing may be discarded: a hint that says nothing, or else the one that misleads least.
    return min(hints, key=lambda hint: _first_that_may_fit(view, hint) is not None)


def _surely(view: FireworksState, held: Held, *, fits: bool) -> bool:
    """Return whether a card of the present player fits, or is useless, whatever it is."""
    seen = [one.card for hand in view.hands for one in hand if one.card != HIDDEN]
    seen += view.discards
    could_be = [
        card
        for card in map(Card._make, product(held.colours, held.ranks))
        if seen.count(card) + (view.stacks[card.colour] >= card.rank)
        < copies(card.rank, view.rules.ranks)
    ]
    if fits:
        return all(is_playable(view, card) for card in could_be)
    return all(card.rank <= view.stacks[card.colour] for card in could_be)


def _meant(view: FireworksState, player: int) -> int | None:
    """Return the card that the last hint to a player says to play, if there was one."""
    for event in view.events[::-1]:
        if event.player == player:
            return None
        if isinstance(event.action, Hint) and event.action.player == player:
            hand = view.hands[player]
            return next((slot for slot in event.slots if _may_fit(view, hand[slot])), None)
    return None


def _may_fit(view: FireworksState, held: Held) -> bool:
    return any(is_playable(view, Card(*one)) for one in product(held.colours, held.ranks))


def _first_that_may_fit(view: FireworksState, hint: Hint) -> int | None:
    """Return the card that a hint would say to play."""
    for slot in touched(view, hint):
        held = view.hands[hint.player][slot]
        told = held._replace(
            colours=held.colours if hint.colour is None else (hint.colour,),
            ranks=held.ranks if hint.rank is None else (hint.rank,),
        )
        if _may_fit(view, told):
            return slot
    return None


def _is_sign(view: FireworksState, hint: Hint) -> bool:
    """Return whether a hint says to play a card that fits, and no other hint says so already."""
    slot = _first_that_may_fit(view, hint)
    if slot is None or _meant(view, hint.player) is not None:
        return False
    card = view.hands[hint.player][slot].card
    others = (seat for seat in range(view.rules.players) if seat != view.player)
    told = [(seat, _meant(view, seat)) for seat in others]
    taken = [view.hands[seat][place].card for seat, place in told if place is not None]
    return is_playable(view, card) and card not in taken


def _worth(view: FireworksState, hint: Hint) -> tuple[int, int]:
    """Return how good a hint is: the lower the card the better, and the more it points at."""
    slot = _first_that_may_fit(view, hint) or 0
    return -view.hands[hint.player][slot].card.rank, len(touched(view, hint))
