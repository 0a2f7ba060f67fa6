"""The rules against a slow reference game, what players can see, certificates, splits."""

import random
from collections import Counter
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import SPLITS, split_of
from pettingllms_envs.fireworks.policies import (
    Request,
    action_of,
    canonical_form,
    dealt_form,
    game_of,
    generate,
)
from pettingllms_envs.fireworks.rules import (
    Card,
    Discard,
    Hint,
    Play,
    Rules,
    actions_of,
    after,
    deal,
    deck_of,
    ending,
    hidden_from,
    reachable,
)

RULES = st.builds(
    Rules,
    st.integers(2, 3),
    st.integers(2, 3),
    st.integers(2, 4),
    st.just(2),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(3, 4),
)
PERFECT = Rules(3, 3, 4, 3, 4, 2, 12)


def dealt(rules, seed):
    deck = deck_of(rules)
    random.Random(seed).shuffle(deck)
    return deal(rules, tuple(deck))


class Reference:
    """The game as its rules are written for people: objects that change, and no clever counting."""

    def __init__(self, rules, deck):
        self.rules = rules
        self.pile = list(deck)
        self.table = {colour: [] for colour in range(rules.colours)}
        self.gone = []
        self.hints, self.fuses, self.turn, self.since_last = rules.hints, rules.fuses, 0, None
        self.hands = [[self.drawn() for _ in range(rules.hand)] for _ in range(rules.players)]

    def drawn(self):
        cards = product(range(self.rules.colours), range(1, self.rules.ranks + 1))
        return {"card": self.pile.pop(0), "may be": set(cards), "is hinted": False}

    def do(self, action):
        rules, hand = self.rules, self.hands[self.turn]
        was_last_drawn = not self.pile
        if action is None:
            self.hints -= bool(self.hints)
        elif isinstance(action, Hint):
            self.hints -= 1
            for held in self.hands[action.player]:
                place, asked = (1, action.rank) if action.colour is None else (0, action.colour)
                same = held["card"][place] == asked
                held["is hinted"] |= same
                held["may be"] = {c for c in held["may be"] if (c[place] == asked) == same}
        else:
            card = hand.pop(action.slot)["card"]
            stack = self.table[card.colour]
            if isinstance(action, Discard):
                self.gone.append(card)
                self.hints = min(rules.hints, self.hints + 1)
            elif card.rank == len(stack) + 1:
                stack.append(card)
                if len(stack) == rules.ranks:
                    self.hints = min(rules.hints, self.hints + 1)
            else:
                self.gone.append(card)
                self.fuses -= 1
            if self.pile:
                hand.append(self.drawn())
        if was_last_drawn:
            self.since_last += 1
        elif not self.pile:
            self.since_last = 0
        self.turn = (self.turn + 1) % rules.players

    def best(self):
        """Return the highest score, by putting all cards that are not gone on the stacks."""
        left = [held["card"] for hand in self.hands for held in hand] + self.pile
        heights = {colour: len(stack) for colour, stack in self.table.items()}
        for _ in left:
            for card in left:
                if card.rank == heights[card.colour] + 1:
                    heights[card.colour] += 1
        return sum(heights.values())

    def end(self):
        if sum(map(len, self.table.values())) >= self.rules.target:
            return "won"
        if self.fuses == 0:
            return "fuses"
        if self.best() < self.rules.target:
            return "lost card"
        return "deck" if self.since_last == self.rules.players else ""


def choice(state, rng):
    """Return an action of any of the policies, or a lost turn."""
    policy = rng.choice(["random", "random", "oracle", "conventions", "greedy", ""])
    return action_of(state, policy, rng) if policy else None


@settings(max_examples=150)
@given(rules=RULES, seed=st.integers(0, 10**6))
def test_games_are_those_of_the_reference(rules, seed):
    state, rng = dealt(rules, seed), random.Random(seed)
    game = Reference(rules, state.deck)
    while True:
        assert [[h.card for h in hand] for hand in state.hands] == [
            [held["card"] for held in hand] for hand in game.hands
        ]
        assert [[set(product(h.colours, h.ranks)) for h in hand] for hand in state.hands] == [
            [held["may be"] for held in hand] for hand in game.hands
        ]
        assert [[h.is_hinted for h in hand] for hand in state.hands] == [
            [held["is hinted"] for held in hand] for hand in game.hands
        ]
        assert all(h.card in product(h.colours, h.ranks) for hand in state.hands for h in hand)
        assert list(state.stacks) == [len(stack) for stack in game.table.values()]
        assert list(state.discards) == sorted(game.gone)
        assert (state.hints, state.fuses, state.num_left) == (
            game.hints,
            game.fuses,
            len(game.pile),
        )
        assert (state.player, reachable(state)) == (game.turn, game.best())
        assert ending(state) == game.end()
        if ending(state):
            break
        action = choice(state, rng)
        state = after(state, action)
        game.do(action)
    assert len(state.deck) == rules.num_cards


@given(seed=st.integers(0, 10**6), num_actions=st.integers(0, 12))
def test_what_is_possible_is_what_the_rules_of_the_table_say(seed, num_actions):
    state, rng = dealt(PERFECT, seed), random.Random(seed)
    for _ in range(num_actions):
        state = state if ending(state) else after(state, choice(state, rng))
    expected = {Play(slot) for slot in range(len(state.hands[state.player]))}
    if state.hints < PERFECT.hints:
        expected |= {Discard(slot) for slot in range(len(state.hands[state.player]))}
    for other in {0, 1, 2} - {state.player}:
        for held in state.hands[other] if state.hints else ():
            expected |= {Hint(other, held.card.colour), Hint(other, None, held.card.rank)}
    assert set(actions_of(state)) == expected
    assert len(actions_of(state)) == len(expected)


def exchanged(state, seat, rng):
    """Return the state with cards in place of those that a player does not see: hand and deck."""
    hidden = [held.card for held in state.hands[seat]] + list(state.deck[state.num_drawn :])
    rng.shuffle(hidden)
    hands, deck = list(state.hands), list(state.deck)
    size = len(hands[seat])
    hands[seat] = tuple(
        held._replace(card=card) for held, card in zip(hands[seat], hidden[:size], strict=True)
    )
    deck[state.num_drawn :] = hidden[size:]
    return state._replace(hands=tuple(hands), deck=tuple(deck))


@given(seed=st.integers(0, 10**6), num_actions=st.integers(0, 14))
def test_own_cards_and_the_deck_change_neither_what_is_seen_nor_what_conventions_do(
    seed, num_actions
):
    state, rng = dealt(PERFECT, seed), random.Random(seed)
    for _ in range(num_actions):
        state = state if ending(state) else after(state, choice(state, rng))
    seat = state.player
    other = exchanged(state, seat, rng)
    assert hidden_from(other, seat) == hidden_from(state, seat)
    for policy in ("conventions", "greedy"):
        assert action_of(other, policy, rng) == action_of(state, policy, rng)


def test_conventions_never_burn_a_fuse_on_a_card_that_a_hint_has_pointed_out():
    """The first card of a sign that may fit does fit: whoever was told plays it at once."""
    num_signs = 0
    for seed in range(60):
        state, rng = dealt(Rules(2, 3, 3, 3, 4, 2, 9), seed), random.Random(seed)
        while not ending(state):
            action = action_of(state, "conventions", rng)
            state, before = after(state, action), state
            told = before.events and isinstance(before.events[-1].action, Hint)
            if (
                told
                and isinstance(action, Play)
                and before.hands[before.player][action.slot].is_hinted
            ):
                num_signs += 1
                assert state.events[-1].fits or before.hints == before.rules.hints - 1
    assert num_signs > 60


def test_conventions_give_no_sign_for_a_card_that_another_was_told_to_play():
    rules = Rules(3, 2, 3, 2, 4, 2, 6)
    first = [(0, 1), (0, 2), (0, 3), (1, 3), (0, 1), (0, 2)]
    deck = [Card(*card) for card in first]
    rest = Counter(deck_of(rules)) - Counter(deck)
    state, rng = deal(rules, (*deck, *rest.elements())), random.Random(0)
    sign = action_of(state, "conventions", rng)
    assert isinstance(sign, Hint)
    assert sign.player == 2
    assert not isinstance(action_of(after(state, sign), "conventions", rng), Hint)
    # Had nobody been told, the next player would have hinted at the other red 1.
    other = action_of(after(state, None), "conventions", rng)
    assert isinstance(other, Hint)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), colours=st.permutations(range(3)), data=st.data())
def test_names_of_colours_and_the_order_of_first_hands_do_not_matter(seed, colours, data):
    start = dealt(PERFECT, seed)
    size = PERFECT.hand
    deck = [Card(colours[card.colour], card.rank) for card in start.deck]
    for at in range(0, size * PERFECT.players, size):
        deck[at : at + size] = data.draw(st.permutations(deck[at : at + size]))
    image = deal(PERFECT, tuple(deck))
    assert canonical_form(image) == canonical_form(start)
    drawn = deck[start.num_drawn :]
    image = deal(PERFECT, (*deck[: start.num_drawn], *drawn[1:], drawn[0]))
    assert (canonical_form(image) == canonical_form(start)) == (len(set(drawn)) == 1)


def test_canonical_forms_differ_as_brute_force_says():
    """Of all deals of six cards: two have one form if and only if one is an image of the other."""
    rules = Rules(2, 2, 2, 2, 1, 1, 4)
    decks = {tuple(deck) for seed in range(400) for deck in [dealt(rules, seed).deck]}

    def images(deck):
        for order in permutations(range(2)):
            named = [Card(order[card.colour], card.rank) for card in deck]
            for first, second in product(permutations(named[:2]), permutations(named[2:4])):
                yield (*first, *second, *named[4:])

    forms = {deck: canonical_form(deal(rules, deck)) for deck in decks}
    by_images = {deck: min(images(deck)) for deck in decks}
    assert Counter(Counter(forms.values()).values()) == Counter(
        Counter(by_images.values()).values()
    )
    assert len(set(zip(forms.values(), by_images.values(), strict=True))) == len(
        set(forms.values())
    )


@pytest.mark.parametrize("split", SPLITS)
def test_generated_deals_keep_their_request(split):
    for seed in range(10):
        request = Request(PERFECT, 30, split).checked()
        start = generate(random.Random(seed), request)
        assert split_of(dealt_form(start)) == split
        assert Counter(start.deck) == Counter(deck_of(PERFECT))
        assert game_of(start, "oracle", 30).num_actions > 0
        state, num_actions = start, 0
        # A team of players who are given nothing but what a player sees.
        while not ending(state):
            view = hidden_from(state, state.player)
            state = after(state, action_of(view, "conventions", random.Random(0)))
            num_actions += 1
        assert (ending(state), num_actions) == ("won", start.witness)
        assert num_actions <= 30
        assert PERFECT.target <= start.team_score


def winnable(rules, deck):
    """Return whether some sequence of actions wins a deal, by trying all of them."""
    seen, edge = set(), [deal(rules, deck)]
    while edge:
        state = edge.pop()
        if ending(state) == "won":
            return True
        if ending(state) or state in seen:
            continue
        seen.add(state)
        edge += [after(state, action)._replace(events=()) for action in actions_of(state)]
    return False


def test_the_oracle_wins_no_deal_that_cannot_be_won_and_nearly_all_others():
    rules = Rules(2, 2, 2, 2, 1, 1, 4)
    decks = [dealt(rules, seed).deck for seed in range(40)]
    by_search = [winnable(rules, deck) for deck in decks]
    by_oracle = [game_of(deal(rules, deck), "oracle", 99).num_actions > 0 for deck in decks]
    assert all(search or not oracle for search, oracle in zip(by_search, by_oracle, strict=True))
    assert sum(by_oracle) >= 0.8 * sum(by_search) > 0


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (PERFECT._replace(hand=5, players=5), "at least one must be left to draw"),
        (PERFECT._replace(target=13), "target=13 is more than the 12"),
    ],
)
def test_requests_that_contradict_themselves_are_refused(rules, message):
    with pytest.raises(UnreachableRequest, match=message):
        Request(rules, 30, None).checked()


def test_requests_that_cannot_be_met_are_refused():
    with pytest.raises(InvalidArgument, match="invalid players: got 6"):
        Request(PERFECT._replace(players=6), 30, None).checked()
    with pytest.raises(UnreachableRequest, match="raise max_turns or hints, or lower target"):
        generate(random.Random(0), Request(PERFECT, 11, None).checked())
