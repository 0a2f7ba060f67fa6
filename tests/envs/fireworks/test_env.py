"""What players read and write, rewards, ends."""

import random

import pytest

import pettingllms
from pettingllms.types import ParseError
from pettingllms_envs.fireworks.env import action_text, read_action, terse
from pettingllms_envs.fireworks.rules import (
    Discard,
    Hint,
    Play,
    Rules,
    actions_of,
    hidden_from,
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
            hands = list(state.hands)
            hands[seat] = tuple(
                held._replace(card=card)
                for held, card in zip(hands[seat], state.deck[-len(hands[seat]) :], strict=True)
            )
            other = state._replace(hands=tuple(hands), deck=state.deck[::-1])
            agent = f"player_{seat}"
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


def test_colours_and_ranks_of_other_games_are_unreadable():
    small = FULL._replace(colours=2, ranks=3)
    assert isinstance(read_action("#### hint 1 blue", small, is_marked=True), ParseError)
    assert isinstance(read_action("#### hint 1 rank 4", small, is_marked=True), ParseError)


def test_all_actions_are_read_as_they_are_written():
    env = started(players=5, colours=5, ranks=5, hand=5, hints=8, target=5)
    env.step(f"#### hint 1 {'rank'} {env.state().hands[1][0].card.rank}")
    actions = actions_of(env.state())
    assert {type(action) for action in actions} == {Play, Discard, Hint}
    for action in actions:
        assert read_action(f"#### {action_text(action)}", FULL, is_marked=True) == action
        assert read_action(terse(action), FULL, is_marked=False) == action
