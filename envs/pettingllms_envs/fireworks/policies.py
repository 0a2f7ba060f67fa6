"""The scripted policies of a player, and deals by chance that one of them certifies."""

from __future__ import annotations

import random
from itertools import permutations, product
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.fireworks.rules import (
    COLOURS,
    HIDDEN,
    MAX_FUSES,
    MAX_HAND,
    MAX_HINTS,
    MAX_PLAYERS,
    MAX_RANKS,
    MIN_PLAYERS,
    MIN_RANKS,
    Action,
    Card,
    Discard,
    FireworksState,
    Held,
    Hint,
    Play,
    Rules,
    actions_of,
    after,
    copies,
    deal,
    deck_of,
    fault_of,
    hidden_from,
    is_playable,
    touched,
)


def action_of(state: FireworksState, policy: str, rng: random.Random) -> Action:
    """What the present player does.

    Oracle sees all cards, the deck too. Conventions sees what a player sees, and takes a hint as a
    sign to play (`_by_conventions`). Greedy never hints: it plays the oldest card while a fuse may
    burn, then discards the oldest. Random does anything that is possible.
    """
    if policy == "oracle":
        return _seeing_all(state)
    if policy == "conventions":
        # Hidden before it is asked: the policy cannot use by mistake what a player does not see.
        return _by_conventions(hidden_from(state, state.player))
    if policy == "random":
        return rng.choice(actions_of(state))
    # The last fuse is kept: without it the game would end at the first wrong card.
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
    # After the last card is drawn everybody has one turn: so many cards can still be played.
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
    """How little a card is missed: whether there is another one, and its rank."""
    held = sum(one.card == card for hand in state.hands for one in hand)
    return held + state.deck[state.num_drawn :].count(card) > 1, card.rank


# What a player sees ---------------------------------------------------------------------------


def _by_conventions(view: FireworksState) -> Action:
    """Play, hint, discard, in this order, as a team that has agreed on what a hint says.

    A hint says: the first card it points at that may fit does fit. So whoever was told plays that
    card, and nobody hints where it would not fit. Cards that no hint has pointed at are discarded,
    the oldest first.
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
    """Whether a card of the present player fits, or is useless, whatever it is."""
    seen = [one.card for hand in view.hands for one in hand if one.card != HIDDEN]
    seen += view.discards
    could_be = [
        card
        for card in map(Card._make, product(held.colours, held.ranks))
        # A card whose copies are all seen elsewhere cannot be this one.
        if seen.count(card) + (view.stacks[card.colour] >= card.rank)
        < copies(card.rank, view.rules.ranks)
    ]
    if fits:
        return all(is_playable(view, card) for card in could_be)
    return all(card.rank <= view.stacks[card.colour] for card in could_be)


def _meant(view: FireworksState, player: int) -> int | None:
    """The card that the last hint to a player says to play, if there was one."""
    for event in view.events[::-1]:
        # Older hints were for a turn that the player has had since.
        if event.player == player:
            return None
        if isinstance(event.action, Hint) and event.action.player == player:
            hand = view.hands[player]
            return next((slot for slot in event.slots if _may_fit(view, hand[slot])), None)
    return None


def _may_fit(view: FireworksState, held: Held) -> bool:
    return any(is_playable(view, Card(*one)) for one in product(held.colours, held.ranks))


def _first_that_may_fit(view: FireworksState, hint: Hint) -> int | None:
    """The card that a hint would say to play."""
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
    """Whether a hint says to play a card that fits, and no other hint says so already."""
    slot = _first_that_may_fit(view, hint)
    if slot is None or _meant(view, hint.player) is not None:
        return False
    # Two who are told of the same card would both play it, and the second burn a fuse.
    card = view.hands[hint.player][slot].card
    others = (seat for seat in range(view.rules.players) if seat != view.player)
    told = [(seat, _meant(view, seat)) for seat in others]
    taken = [view.hands[seat][place].card for seat, place in told if place is not None]
    return is_playable(view, card) and card not in taken


def _worth(view: FireworksState, hint: Hint) -> tuple[int, int]:
    """How good a hint is: the lower the card the better, and the more it points at."""
    slot = _first_that_may_fit(view, hint) or 0
    return -view.hands[hint.player][slot].card.rank, len(touched(view, hint))


ATTEMPTS = 500


class Request(NamedTuple):
    """Properties of the deals to generate; see the arguments of `FireworksEnv`."""

    rules: Rules
    max_actions: int
    """Actions within which the oracle and the team must reach the target."""
    split: str | None

    def checked(self) -> Request:
        """The request, in Python's numbers.

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
        return self._replace(rules=rules)


def generate(rng: random.Random, request: Request) -> FireworksState:
    """The first state of a random deal with the properties of a checked request.

    The certificates are two games: of the oracle, which sees all cards, and of the team
    `conventions`, whose players see what players see. Both reach the target in time.

    Raises:
        UnreachableRequest: If the two did not both win one of 500 deals.
    """
    deck = deck_of(request.rules)
    attempts = 0
    while attempts < ATTEMPTS:
        rng.shuffle(deck)
        start = deal(request.rules, tuple(deck))
        # Cheap, and before the game is played: deals of other splits are not attempts.
        if request.split is not None and split_of(dealt_form(start)) != request.split:
            continue
        attempts += 1
        # The oracle first: its game takes a tenth of the time.
        if game_of(start, "oracle", request.max_actions).num_actions:
            by_team = game_of(start, "conventions", request.max_actions)
            if by_team.num_actions:
                return start._replace(witness=by_team.num_actions, team_score=by_team.score)
    raise UnreachableRequest(
        f"a team that sees what players see won none of {ATTEMPTS} deals of {request.rules} within "
        f"{request.max_actions} actions; raise max_turns or hints, or lower target"
    )


class Game(NamedTuple):
    """What a policy makes of a deal."""

    num_actions: int
    """Actions in which it reaches the target; 0 if it does not."""
    score: int
    """Cards on the stacks when it has played on after that, as long as there are turns."""


def game_of(start: FireworksState, policy: str, max_actions: int) -> Game:
    """The game of a team of one policy, with at most so many actions."""
    state, rng, num_actions = start, random.Random(0), 0
    highest = start.rules.colours * start.rules.ranks
    for number in range(1, max_actions + 1):
        state = after(state, action_of(state, policy, rng))
        if state.score >= start.rules.target and not num_actions:
            num_actions = number
        # Not `ending`, which is the target reached: what is beyond it is asked here.
        if not state.fuses or state.last_turns == 0 or state.score == highest:
            break
    return Game(num_actions, state.score)


def dealt_form(start: FireworksState) -> bytes:
    """What decides the split of a deal: its first hands, up to what `canonical_form` leaves open.

    The deck does not: nobody has read it when the first prompts are, and a first prompt of the
    team must not occur in two splits.
    """
    colours = (
        [sorted(one.card.rank for one in hand if one.card.colour == colour) for hand in start.hands]
        for colour in range(start.rules.colours)
    )
    return str(sorted(colours)).encode()


def canonical_form(start: FireworksState) -> bytes:
    """What identifies a deal up to the names of colours and the order within first hands.

    Colours are named in the order in which they are drawn; those that are in hands alone in the
    order that makes the text the smallest.
    """
    drawn = tuple(dict.fromkeys(card.colour for card in start.deck[start.num_drawn :]))
    others = [colour for colour in range(start.rules.colours) if colour not in drawn]
    # Colours that are still to be drawn have an order by themselves; only few are permuted.
    return min(_text(start, (*drawn, *order)) for order in permutations(others))


def _text(start: FireworksState, order: tuple[int, ...]) -> bytes:
    def named(colour: int, rank: int) -> str:
        return f"{order.index(colour)}{rank}"

    hands = [sorted(named(*held.card) for held in hand) for hand in start.hands]
    drawn = [named(*card) for card in start.deck[start.num_drawn :]]
    return f"{hands} {drawn}".encode()
