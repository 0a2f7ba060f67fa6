"""Returns: what decisions were worth, by what came after them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.learning.returns import path_returns, returns_to_go
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


def test_later_rewards_count_in_full_or_discounted():
    assert returns_to_go([1, 2, 4]) == [7, 6, 4]
    assert returns_to_go([1.0, 2.0, -4.0], 0.5) == [1.0, 0.0, -4.0]
    assert returns_to_go([]) == []


@pytest.mark.parametrize(("chosen", "worth"), [(0, 2), (1, 5)])
def test_the_candidate_that_was_followed_counts(chosen, worth):
    found = decision(0, 0, "s", 2, chosen=chosen)
    other = replace(found.candidates[0], reward=5)
    branched = replace(tree(0), decisions=(replace(found, candidates=(*found.candidates, other)),))
    assert path_returns(branched, "tool_0", 1.0) == [worth]


def test_agents_get_the_team_part_of_what_others_do():
    trees = [tree(0, ("s", 1.0, 0.0, "tool_0"), ("a", 3.0, 2.0, "planner_0"))]
    assert path_returns(trees[0], "tool_0", 1.0) == [2, 1]
    assert path_returns(trees[0], "planner_0", 1.0) == [4, 3]


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=5), st.floats(0.1, 1))
def test_of_one_agent_they_are_the_returns_to_go(rewards, gamma):
    alone = tree(0, *((str(position), reward) for position, reward in enumerate(rewards)))
    assert path_returns(alone, "tool_0", gamma) == pytest.approx(returns_to_go(rewards, gamma))


def test_a_decision_without_a_followed_candidate_is_refused():
    alone = RolloutTree(
        episode=0, env_seed=0, initial_state_hash="", outcome=None,
        decisions=(decision(0, 0, "s", 1.0, chosen=None),),
    )  # fmt: skip
    with pytest.raises(GroupError, match="no chosen candidate"):
        path_returns(alone, "tool_0", 1.0)
