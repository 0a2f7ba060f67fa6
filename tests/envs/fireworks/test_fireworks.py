"""The rules against a slow reference game, what players see and write, certificates, rewards."""

import random
from collections import Counter
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms_envs.fireworks.env import action_text, read_action, terse
from pettingllms_envs.fireworks.rules import (
    Card,
    Discard,
    Hint,
    Play,
    Rules,
    action_of,
    actions_of,
    after,
    canonical_form,
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


FULL = Rules(5, 5, 5, 4, 8, 3, 25)


def started(seed=0, **kwargs):
    env = pettingllms.make("fireworks_v0", checks=False, **kwargs)
    env.reset(seed=seed)
    return env


def local(env, agent):
    return env.infos[agent]["reward_parts"]["local"]


def test_no_placeholder_depends_on_own_cards():
    """All of them, for every reader, where the reader's cards are exchanged for others."""
    for seed in range(20):
        env, rng = started(seed), random.Random(seed)
        for _ in range(rng.randrange(6)):
            if env.acting():
                env.step(env.scripted_action(env.agent_selection, "conventions", rng))
        state = env.state()
        for seat in range(2):
            other, agent = exchanged(state, seat, rng), f"player_{seat}"
            assert dict(env._fields(other, agent, 0)) == dict(env._fields(state, agent, 0))
            assert env._fields(state, agent, 0).moment[0] == hidden_from(state, seat)


def test_lost_turns_take_hints_and_nothing_else():
    env = started(hints=2)
    texts = ["hm", "#### discard 9", "#### hint 0 rank 1", "#### hint 1 red and green"]
    for text, left, cost in zip(texts, (1, 0, 0, 0), (0.05, 0.04, 0.04, 0.05), strict=True):
        agent, before = env.agent_selection, env.state()
        env.step(text)
        after = env.state()
        assert (after.hands, after.stacks, after.fuses) == (before.hands, before.stacks, 2)
        assert after.hints == left
        assert local(env, agent) == pytest.approx(-cost / 8)
        assert f"{agent.replace('_', ' ')} lost a turn." in env.observe(env.agent_selection)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("#### hint 0 red", "hints are for other players"),
        ("#### hint 4 red", "hints are for other players"),
        ("#### play 9", "there is no card 9"),
        ("#### discard 1", "no card is discarded while all hints are there"),
    ],
)
def test_impossible_actions_say_why(text, fault):
    env = started()
    env.step(text)
    assert fault in env.infos["player_0"]["fault"]
    assert env.infos["player_0"]["parse_error"] is None


def test_hints_must_point_at_a_card_and_be_left():
    env = started(seed=1, ranks=5, target=5)
    ranks = {held.card.rank for held in env.state().hands[1]}
    env.step(f"#### hint 1 rank {min({1, 2, 3, 4, 5} - ranks)}")
    assert env.infos["player_0"]["fault"] == "a hint must point at a card"
    for text in ("", "", "", f"#### hint 1 rank {min(ranks)}"):
        agent = env.agent_selection
        env.step(text)
    assert env.infos[agent]["fault"] == "no hint is left"


def test_stacks_pay_and_lost_games_keep_what_was_built():
    env = started(seed=2)
    paid = 0.0
    while env.state().score < 2:
        env.step(env.scripted_action(env.agent_selection, "oracle", random.Random(0)))
        paid += env.rewards["player_0"]
    assert paid == pytest.approx(0.1 * 2 / 5)
    while env.acting():
        agent, state = env.agent_selection, env.state()
        hand = [held.card for held in state.hands[state.player]]
        wrong = [n for n, card in enumerate(hand, 1) if card.rank != state.stacks[card.colour] + 1]
        env.step(f"#### play {wrong[0]}" if wrong else "")
        assert env.infos[agent]["reward_parts"]["team"] == 0
    assert env.infos[agent]["ending"] == "fuses"
    assert not env.infos[agent]["success"]


def test_all_actions_are_read_as_they_are_written():
    env = started(players=5, colours=5, ranks=5, hand=5, hints=8, target=5)
    env.step(f"#### hint 1 {'rank'} {env.state().hands[1][0].card.rank}")
    actions = actions_of(env.state())
    assert {type(action) for action in actions} == {Play, Discard, Hint}
    for action in actions:
        assert read_action(f"#### {action_text(action)}", FULL, is_marked=True) == action
        assert read_action(terse(action), FULL, is_marked=False) == action
