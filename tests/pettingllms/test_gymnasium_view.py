import gymnasium
import pytest

import pettingllms
from pettingllms.adapters.gymnasium import SingleAgentView
from pettingllms.errors import InvalidArgument


def test_the_agent_plays_and_team_mates_are_scripted(guess_id):
    env = SingleAgentView(pettingllms.make(guess_id), "guesser_0", {"teller": "oracle"})
    observation, info = env.reset(seed=3)
    secret = str(env.env.state().secret)
    assert f"Hint: {secret}." in observation
    observation, reward, terminated, truncated, info = env.step("0")
    assert (terminated, truncated, info["success"]) == (False, False, False)
    observation, reward, terminated, truncated, info = env.step(secret)
    assert (reward, terminated, info["success"]) == (1.0, True, True)


def test_reward_spans_until_the_next_decision(guess_id):
    env = SingleAgentView(pettingllms.make(guess_id), "teller_0", {"guesser_0": lambda text: "7"})
    env.reset(seed=3, options={"secret": 7})
    _, reward, terminated, _, _ = env.step("7")
    assert (reward, terminated) == (1.5, True)


def test_a_missing_partner_is_told(guess_id):
    env = pettingllms.make(guess_id)
    with pytest.raises(InvalidArgument, match=r"partners\['teller_0'\].*'oracle', 'random'"):
        SingleAgentView(env, "guesser_0")
    with pytest.raises(InvalidArgument, match="partners"):
        SingleAgentView(env, "guesser_0", {"teller": "no such policy"})
    with pytest.raises(InvalidArgument, match="teller_0, guesser_0"):
        SingleAgentView(env, "guesser")


def test_made_through_gymnasium():
    with_partner = gymnasium.make(
        "pettingllms:pettingllms/PlanPath-v0", agent="planner_0", partners={"tool": "oracle"}
    )
    assert with_partner.reset(seed=1)[0]
