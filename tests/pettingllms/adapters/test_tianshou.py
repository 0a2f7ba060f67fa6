"""Real rollouts in Tianshou."""

import pytest

from pettingllms.adapters.tokenised import TextCodec

LIBRARY = "tianshou"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

MOVES = [f'#### ["{letter}"]' for letter in "UDLR"]
ARGUMENTS = {"size": 6, "team": "proposer-planner", "max_turns": 3}


@pytest.fixture
def make_env(library):
    from pettingllms.adapters.tianshou import make_tianshou_env

    return make_tianshou_env


def test_an_episode_with_texts(make_env, guess_id):
    env = make_env(guess_id)
    observation, info = env.reset(seed=3)
    assert observation["agent_id"] == "teller_0"
    assert isinstance(observation["obs"], str)
    secret = str(env.env.state().secret)
    _, rewards, *_ = env.step(secret)
    assert rewards == [0.5, 0.0]
    observation, rewards, terminated, truncated, info = env.step(secret)
    assert rewards == [1.0, 1.0], "every agent is paid in the step that ends the game"
    assert (terminated, truncated, info["success"]) == (True, False, True)


def test_a_collector_plays_whole_episodes(library, run_script):
    assert run_script("tianshou_collect.py").startswith("4 episodes, returns [[")


def test_infos_are_reduced_to_scalars(make_env):
    env = make_env("plan_path_v0", TextCodec(64, MOVES), **ARGUMENTS)
    _, info = env.reset(seed=1)
    keys = {"team", "local", "success", "turn", "is_readable"}
    assert set(info) == keys
    for _ in range(3):
        _, _, _, _, info = env.step(0)
        assert set(info) == keys
        assert all(isinstance(value, bool | int | float) for value in info.values())
