"""Returns that are averaged over the episodes that were in one state."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.learning.returns import (
    StateReturns,
    path_returns,
    returns_to_go,
    state_returns,
)
from pettingllms_trainers.types import (
    Candidate,
    Decision,
    DecisionKey,
    RolloutTree,
    TokenCompletion,
)

COMPLETION = TokenCompletion(token_ids=(1,), logprobs=(0.0,), text="", finish_reason="stop")


def decision(episode, position, state, reward, local=0.0, agent="tool_0", chosen=0):
    candidate = Candidate(completion=COMPLETION, reward=reward, team=reward - local, local=local)
    return Decision(
        key=DecisionKey(episode, position, agent, position), role="tool", policy="p",
        prompt_ids=(1,), observation="", candidates=(candidate,), chosen=chosen, state_key=state,
    )  # fmt: skip


def tree(episode, *steps):
    """Return an episode of (state, reward) or (state, reward, local, agent)."""
    decisions = tuple(decision(episode, number, *step) for number, step in enumerate(steps))
    return RolloutTree(
        episode=episode, env_seed=0, initial_state_hash="", decisions=decisions, outcome=None
    )


def test_what_follows_one_state_is_averaged():
    found = StateReturns(
        [tree(0, ("s", 0), ("a", 1)), tree(1, ("s", 0), ("a", 3)), tree(2, ("s", 5), ("b", 7))], 1.0
    )
    assert found.of(0, "tool_0") == [2, 1]
    assert found.of(1, "tool_0") == [2, 3]
    assert found.of(2, "tool_0") == [12, 7]


def test_averages_of_averages():
    found = StateReturns(
        [
            tree(0, ("s", 0), ("a", 0), ("c", 4)),
            tree(1, ("s", 0), ("a", 1), ("d", 0)),
            tree(2, ("s", 0), ("b", 0), ("c", 8)),
        ],
        0.5,
    )
    # c: 6, d: 0; a: (0.5 * 6 + 1) / 2 = 2, b: 3.
    assert found.of(0, "tool_0") == [1, 3, 4]
    assert found.of(1, "tool_0") == [1, 1, 0]
    assert found.of(2, "tool_0") == [1.5, 3, 8]


def test_later_rewards_count_in_full_or_discounted():
    assert returns_to_go([1, 2, 4]) == [7, 6, 4]
    assert returns_to_go([1.0, 2.0, -4.0], 0.5) == [1.0, 0.0, -4.0]
    assert returns_to_go([]) == []


@pytest.mark.parametrize(("chosen", "worth"), [(0, 2), (1, 5)])
def test_the_candidate_that_was_followed_counts(chosen, worth):
    found = decision(0, 0, "s", 2, chosen=chosen)
    other = replace(found.candidates[0], reward=5)
    branched = replace(tree(0), decisions=(replace(found, candidates=(*found.candidates, other)),))
    assert StateReturns([branched], 1.0).of(0, "tool_0") == [worth]
    assert path_returns(branched, "tool_0", 1.0) == [worth]


def test_states_of_two_levels_are_not_one():
    trees = [tree(0, ("s", 0), ("a", 1)), tree(1, ("s", 0), ("a", 3))]
    elsewhere = replace(tree(2, ("s", 0), ("a", 9)), env_seed=1)
    found = state_returns([*trees, elsewhere, trees[0]], 1.0)
    assert found[0].of(0, "tool_0") == [2, 1], "an episode that occurs twice counts once"
    assert found[1].of(2, "tool_0") == [9, 9]


def test_an_episode_that_is_over_has_no_rest():
    found = StateReturns([tree(0, ("s", 1)), tree(1, ("s", 0), ("a", 5))], 1.0)
    assert found.of(0, "tool_0") == [1]
    assert found.of(1, "tool_0") == [5, 5]


def test_after_a_move_the_state_counts_in_which_it_continues():
    """Both are in `a` after the first decision, whichever state the second had come to."""
    found = StateReturns([tree(0, ("s", 2), ("a", 10)), tree(1, ("s", 0), ("a", 20))], 1.0)
    assert found.of(0, "tool_0")[0] - found.of(1, "tool_0")[0] == 2


def test_agents_get_the_team_part_of_what_others_do():
    trees = [tree(0, ("s", 1.0, 0.0, "tool_0"), ("a", 3.0, 2.0, "planner_0"))]
    found = StateReturns(trees, 1.0)
    assert found.of(0, "tool_0") == [2, 1]
    assert found.of(0, "planner_0") == [4, 3]
    assert path_returns(trees[0], "tool_0", 1.0) == [2, 1]
    assert path_returns(trees[0], "planner_0", 1.0) == [4, 3]


@given(
    st.lists(st.lists(st.floats(-9, 9), min_size=1, max_size=5), min_size=1, max_size=4),
    st.floats(0.1, 1),
)
def test_with_states_of_their_own_they_are_the_returns_to_go(rewards, gamma):
    trees = [
        tree(number, *((f"{number},{position}", reward) for position, reward in enumerate(own)))
        for number, own in enumerate(rewards)
    ]
    found = StateReturns(trees, gamma)
    for number, own in enumerate(rewards):
        assert found.of(number, "tool_0") == pytest.approx(returns_to_go(own, gamma))


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.floats(-9, 9)), min_size=1, max_size=5),
        min_size=1,
        max_size=5,
    )
)
def test_the_mean_over_the_first_state_is_that_of_the_returns(paths):
    """Averages move credit between episodes, and make or lose none."""
    steps = [
        [("s", path[0][1]), *((s + str(i), r) for i, (s, r) in enumerate(path))] for path in paths
    ]
    found = StateReturns([tree(number, *own) for number, own in enumerate(steps)], 1.0)
    values = [found.of(number, "tool_0")[0] for number in range(len(steps))]
    assert sum(values) == pytest.approx(sum(r for own in steps for _, r in own), abs=1e-9)


def test_a_decision_without_a_followed_candidate_is_refused():
    alone = RolloutTree(
        episode=0, env_seed=0, initial_state_hash="", outcome=None,
        decisions=(decision(0, 0, "s", 1.0, chosen=None),),
    )  # fmt: skip
    with pytest.raises(GroupError, match="no chosen candidate"):
        StateReturns([alone], 1.0)
    with pytest.raises(GroupError, match="no chosen candidate"):
        path_returns(alone, "tool_0", 1.0)
