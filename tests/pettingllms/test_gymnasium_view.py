import gymnasium
import numpy as np
import pytest

import pettingllms
from pettingllms.adapters.gymnasium import SingleAgentView, gymnasium_id
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
    env = gymnasium.make("pettingllms/PlanPath-v0", size=6)
    first, _ = env.reset(seed=1)
    again, _ = env.reset(seed=1)
    assert first == again
    assert first in env.observation_space
    result = env.step("#### []")
    assert len(result) == 5
    with_partner = gymnasium.make(
        "pettingllms:pettingllms/PlanPath-v0", agent="planner_0", partners={"tool": "oracle"}
    )
    assert with_partner.reset(seed=1)[0]


def test_vector_environments_keep_their_texts():
    env = gymnasium.make_vec(
        "pettingllms/PlanPath-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False},
        size=6,
    )
    try:
        observations, _ = env.reset(seed=[1, 2])
        single = gymnasium.make("pettingllms/PlanPath-v0", size=6)
        assert [single.reset(seed=s)[0] for s in (1, 2)] == list(observations)
        _, rewards, *_ = env.step(("#### []", "#### []"))
        assert np.all(rewards <= 0)
    finally:
        env.close()


def test_ids():
    assert gymnasium_id("math_ensemble_v0") == "pettingllms/MathEnsemble-v0"
