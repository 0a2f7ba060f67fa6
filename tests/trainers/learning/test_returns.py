"""Returns: what decisions were worth, by what came after them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_toys import decision, tree

from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.learning.returns import path_returns, returns_to_go


def test_later_rewards_count_in_full_or_discounted():
    assert returns_to_go([1, 2, 4]) == [7, 6, 4]
    assert returns_to_go([1.0, 2.0, -4.0], 0.5) == [1.0, 0.0, -4.0]
    assert returns_to_go([]) == []


def path(*steps):
    """An episode of (reward, local part, agent), of which the last two may be left out."""
    made = []
    for index, (reward, *rest) in enumerate(steps):
        local, agent = rest or (0.0, "tool_0")
        made.append(decision([reward], index=index, turn=index, local=local, agent=agent))
    return tree(*made)


@pytest.mark.parametrize(("chosen", "worth"), [(0, 2), (1, 5)])
def test_the_candidate_that_was_followed_counts(chosen, worth):
    branched = tree(decision([2, 5], agent="tool_0", chosen=chosen))
    assert path_returns(branched, "tool_0", 1.0) == [worth]


def test_agents_get_the_team_part_of_what_others_do():
    both = path((1.0, 0.0, "tool_0"), (3.0, 2.0, "planner_0"))
    assert path_returns(both, "tool_0", 1.0) == [2, 1]
    assert path_returns(both, "planner_0", 1.0) == [4, 3]


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=5), st.floats(0.1, 1))
def test_of_one_agent_they_are_the_returns_to_go(rewards, gamma):
    alone = path(*((reward,) for reward in rewards))
    assert path_returns(alone, "tool_0", gamma) == pytest.approx(returns_to_go(rewards, gamma))


def test_a_decision_without_a_followed_candidate_is_refused():
    alone = tree(decision([1.0], agent="tool_0", chosen=None))
    with pytest.raises(GroupError, match="no chosen candidate"):
        path_returns(alone, "tool_0", 1.0)
