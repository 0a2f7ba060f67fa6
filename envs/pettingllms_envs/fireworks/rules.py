"""The cards, what players may do, and what one player sees of it: the rules, as pure functions.

And the scripted policies of a player, and deals by chance that one of them certifies.
"""

from __future__ import annotations

import random
from itertools import permutations, product
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of

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
