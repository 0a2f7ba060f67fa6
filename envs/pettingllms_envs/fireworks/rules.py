"""The cards, what players may do, and what one player sees of it: the rules, as pure functions."""

from __future__ import annotations

from typing import NamedTuple

COLOURS = "RGBWY"
"""Letters of the colours, from the first on."""
MIN_PLAYERS, MAX_PLAYERS = 2, 5
MIN_RANKS, MAX_RANKS = 2, 5
MAX_HAND = 5
MAX_HINTS = 8
MAX_FUSES = 3


class Card(NamedTuple):
    """A card; the hidden one is `HIDDEN`."""

    colour: int
    """Number of the colour, from 0: its place in `COLOURS`."""
    rank: int
    """From 1."""


HIDDEN = Card(-1, 0)


class Held(NamedTuple):
    """A card in a hand, with what its holder was told about it."""

    card: Card
    """The card itself, or `HIDDEN` in what its holder sees."""
    colours: tuple[int, ...]
    """Colours that the hints leave."""
    ranks: tuple[int, ...]
    """Ranks that the hints leave."""
    is_hinted: bool = False
    """Whether a hint has pointed at it."""


class Rules(NamedTuple):
    """What is on the table at the start, and what wins."""

    players: int
    colours: int
    ranks: int
    """Highest rank."""
    hand: int
    hints: int
    """Hints at the start, which are the most there can be."""
    fuses: int
    """Misplaced cards that lose the game."""
    target: int
    """Sum of the heights of the stacks that wins."""

    @property
    def num_cards(self) -> int:
        """Cards of the deck."""
        return self.colours * sum(copies(rank, self.ranks) for rank in range(1, self.ranks + 1))


class Play(NamedTuple):
    """Put a card of one's own on its stack."""

    slot: int
    """Place in the hand, from 0, the oldest card."""
    verb: str = "play"
    """Makes it unequal to discarding the same card, as tuples are compared by value."""


class Discard(NamedTuple):
    """Put a card of one's own away, and regain a hint."""

    slot: int
    """Place in the hand, from 0, the oldest card."""
    verb: str = "discard"


class Hint(NamedTuple):
    """Show a player all own cards of a colour, or all of a rank."""

    player: int
    colour: int | None
    """Number of the colour; None: a rank is told."""
    rank: int | None = None
    """The rank, from 1; None: a colour is told."""


Action = Play | Discard | Hint


class Event(NamedTuple):
    """What a player has done."""

    player: int
    action: Action | None
    """None: the turn was lost."""
    card: Card = HIDDEN
    """The card that was played or discarded."""
    slots: tuple[int, ...] = ()
    """The cards that a hint pointed at."""
    fits: bool = False
    """Whether a card that was played went on its stack."""


class FireworksState(NamedTuple):
    """The state of an episode; `hidden_from` returns what a player sees of it."""

    rules: Rules
    """What is on the table at the start, and what wins."""
    deck: tuple[Card, ...]
    """All cards in the order in which they are dealt and drawn."""
    hands: tuple[tuple[Held, ...], ...]
    """Player -> the hand, from the oldest card to the newest."""
    stacks: tuple[int, ...]
    """Colour -> height of its stack."""
    hints: int
    fuses: int
    """Fuses that have not burnt."""
    num_drawn: int
    """Cards of the deck that were dealt or drawn."""
    player: int = 0
    """Whose turn it is."""
    discards: tuple[Card, ...] = ()
    """The cards put away, sorted."""
    events: tuple[Event, ...] = ()
    """What was done since the present player's last turn."""
    last_turns: int | None = None
    """Turns that are left, all players' together; None until the last card is drawn."""
    witness: int = 0
    """Actions in which the team `conventions`, who see what players see, wins the deal."""
    team_score: int = 0
    """Cards on the stacks when that team has played on to the end."""

    @property
    def num_left(self) -> int:
        """Cards that are left to draw."""
        return self.rules.num_cards - self.num_drawn

    @property
    def score(self) -> int:
        """Sum of the heights of the stacks."""
        return sum(self.stacks)


def copies(rank: int, ranks: int) -> int:
    """How many cards of a rank each colour has: three 1s, one of the highest, else two."""
    return 3 if rank == 1 else 1 if rank == ranks else 2


def deck_of(rules: Rules) -> list[Card]:
    """The cards of the game, sorted."""
    return [
        Card(colour, rank)
        for colour in range(rules.colours)
        for rank in range(1, rules.ranks + 1)
        for _ in range(copies(rank, rules.ranks))
    ]


def deal(rules: Rules, deck: tuple[Card, ...]) -> FireworksState:
    """The first state of a deck: player 0 has the first `hand` cards, and so on."""
    size = rules.hand
    hands = tuple(
        tuple(_unknown(rules, card) for card in deck[at : at + size])
        for at in range(0, size * rules.players, size)
    )
    stacks = (0,) * rules.colours
    num_drawn = size * rules.players
    return FireworksState(rules, deck, hands, stacks, rules.hints, rules.fuses, num_drawn)


def _unknown(rules: Rules, card: Card) -> Held:
    return Held(card, tuple(range(rules.colours)), tuple(range(1, rules.ranks + 1)))


def hidden_from(state: FireworksState, player: int) -> FireworksState:
    """What a player sees: the player's own cards are `HIDDEN`, and there is no deck."""
    hands = list(state.hands)
    # What hints have told of these cards stays: that is all that a player knows of them.
    hands[player] = tuple(held._replace(card=HIDDEN) for held in hands[player])
    return state._replace(deck=(), hands=tuple(hands))


def is_playable(state: FireworksState, card: Card) -> bool:
    """Whether a card is the next one of its stack."""
    return state.stacks[card.colour] + 1 == card.rank


def touched(state: FireworksState, hint: Hint) -> tuple[int, ...]:
    """The places of the cards that a hint points at."""
    return tuple(
        slot
        for slot, held in enumerate(state.hands[hint.player])
        if hint.colour == held.card.colour or hint.rank == held.card.rank
    )


def fault_of(state: FireworksState, action: Action) -> str:
    """Why the present player cannot do this; empty if that is possible."""
    if isinstance(action, Hint):
        if action.player == state.player or action.player >= state.rules.players:
            return "hints are for other players"
        if not state.hints:
            return "no hint is left"
        return "" if touched(state, action) else "a hint must point at a card"
    if action.slot >= len(state.hands[state.player]):
        return f"there is no card {action.slot + 1} in the hand"
    if isinstance(action, Discard) and state.hints == state.rules.hints:
        return "no card is discarded while all hints are there"
    return ""


def actions_of(state: FireworksState) -> list[Action]:
    """What the present player can do."""
    # Candidates are filtered by the one rule book: it cannot differ from what `fault_of` says.
    slots = range(len(state.hands[state.player]))
    rules = state.rules
    found: list[Action] = [kind(slot) for kind in (Play, Discard) for slot in slots]
    for other in range(rules.players):
        found += [Hint(other, colour) for colour in range(rules.colours)]
        found += [Hint(other, None, rank) for rank in range(1, rules.ranks + 1)]
    return [action for action in found if not fault_of(state, action)]


def after(state: FireworksState, action: Action | None) -> FireworksState:
    """The state after a possible action; None: the turn is lost.

    A lost turn takes a hint, if one is left, so that no turn is passed for nothing.
    """
    if action is None:
        # Otherwise silence would be a free pass, and better than a bad action.
        paid = state._replace(hints=max(0, state.hints - 1))
        return _passed_on(paid, Event(state.player, None))
    if isinstance(action, Hint):
        slots = touched(state, action)
        hand = tuple(
            _told(held, action, slot in slots)
            for slot, held in enumerate(state.hands[action.player])
        )
        told = state._replace(hands=_with(state.hands, action.player, hand), hints=state.hints - 1)
        return _passed_on(told, Event(state.player, action, slots=slots))
    return _without_card(state, action)


def _without_card(state: FireworksState, action: Play | Discard) -> FireworksState:
    """The state after a card was played or discarded, and another one drawn."""
    rules, hand = state.rules, state.hands[state.player]
    card = hand[action.slot].card
    fits = isinstance(action, Play) and is_playable(state, card)
    done = state
    if fits:
        done = done._replace(stacks=_with(state.stacks, card.colour, card.rank))
    else:
        # Sorted, so that states which differ in the order of discards alone are equal.
        done = done._replace(discards=tuple(sorted((*state.discards, card))))
    if isinstance(action, Play) and not fits:
        done = done._replace(fuses=state.fuses - 1)
    # A finished stack gives a hint back, as a discard does.
    elif isinstance(action, Discard) or card.rank == rules.ranks:
        done = done._replace(hints=min(state.hints + 1, rules.hints))
    # New cards are the last: conventions go by the age of cards.
    kept = (*hand[: action.slot], *hand[action.slot + 1 :])
    if state.num_left:
        kept = (*kept, _unknown(rules, state.deck[state.num_drawn]))
        done = done._replace(num_drawn=state.num_drawn + 1)
    done = done._replace(hands=_with(state.hands, state.player, kept))
    return _passed_on(done, Event(state.player, action, card, fits=fits))


def _with(values: tuple[object, ...], place: int, value: object) -> tuple[object, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _told(held: Held, hint: Hint, is_meant: bool) -> Held:
    """A card of the player who was told, with what the hint leaves."""
    colours, ranks = (
        tuple(one for one in left if asked is None or (one == asked) == is_meant)
        for left, asked in ((held.colours, hint.colour), (held.ranks, hint.rank))
    )
    return Held(held.card, colours, ranks, held.is_hinted or is_meant)


def _passed_on(state: FireworksState, event: Event) -> FireworksState:
    """The state in the turn of the next player."""
    players = state.rules.players
    last_turns = state.last_turns
    if last_turns is not None:
        last_turns -= 1
    # Everybody has one more turn, whoever has drawn the last card included.
    elif not state.num_left:
        last_turns = players
    return state._replace(
        player=(state.player + 1) % players,
        # Only what a player can have missed: the actions since their last turn.
        events=(*state.events, event)[1 - players :],
        last_turns=last_turns,
    )


def reachable(state: FireworksState) -> int:
    """The highest score that the discards leave: what is above a lost card is lost."""
    total = 0
    for colour, height in enumerate(state.stacks):
        # One lost card takes all above it: a stack has no gaps.
        lost = (
            rank
            for rank in range(height + 1, state.rules.ranks + 1)
            if state.discards.count(Card(colour, rank)) == copies(rank, state.rules.ranks)
        )
        total += next(lost, state.rules.ranks + 1) - 1
    return total


def ending(state: FireworksState) -> str:
    """How the game has ended: `"won"`, `"fuses"`, `"lost card"`, `"deck"`; or nothing."""
    if state.score >= state.rules.target:
        return "won"
    if not state.fuses:
        return "fuses"
    if reachable(state) < state.rules.target:
        return "lost card"
    return "deck" if state.last_turns == 0 else ""
