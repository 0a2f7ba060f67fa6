"""Real rollouts in Tianshou."""

import numpy as np
import pytest

import pettingllms
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


def test_a_collector_plays_whole_episodes(make_env):
    from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
    from tianshou.algorithm.random import MARLRandomDiscreteMaskedOffPolicyAlgorithm
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv

    codec = TextCodec(64, MOVES)

    def make():
        return make_env("plan_path_v0", codec, **ARGUMENTS)

    env = make()
    randoms = [MARLRandomDiscreteMaskedOffPolicyAlgorithm(env.action_space) for _ in env.agents]
    algorithm = MultiAgentOffPolicyAlgorithm(algorithms=randoms, env=env)
    buffer = VectorReplayBuffer(1000, buffer_num=2)
    collector = Collector(algorithm, DummyVectorEnv([make, make]), buffer)
    collector.reset()
    stats = collector.collect(n_episode=4)
    assert stats.n_collected_episodes == 4
    assert stats.returns.shape == (4, 2)
    batch, _ = buffer.sample(0)
    assert set(batch.obs.agent_id) == {"proposer_0", "planner_0"}
    assert batch.obs.obs.shape == (len(batch), 64)
    assert batch.rew.shape == (len(batch), 2)
    assert stats.returns.sum() == pytest.approx(batch.rew.sum())
    assert max(stats.lens) <= 6
    collector.close()


def test_returns_equal_those_of_the_aec_environment(make_env):
    codec = TextCodec(64, MOVES)
    env = make_env("plan_path_v0", codec, **ARGUMENTS)
    twin = pettingllms.make("plan_path_v0", checks=False, **ARGUMENTS)
    for seed in range(5):
        env.reset(seed=seed)
        twin.reset(seed=seed)
        totals, expected = np.zeros(2), np.zeros(2)
        ended = False
        while not ended:
            _, rewards, terminated, truncated, _ = env.step(seed % 4)
            twin.step(MOVES[seed % 4])
            totals += rewards
            expected += list(twin.rewards.values())
            ended = terminated or truncated
        assert totals == pytest.approx(expected)
        assert any(twin.terminations.values()) == terminated


def test_infos_are_reduced_to_scalars(make_env):
    env = make_env("plan_path_v0", TextCodec(64, MOVES), **ARGUMENTS)
    _, info = env.reset(seed=1)
    keys = {"team", "local", "success", "turn", "is_readable"}
    assert set(info) == keys
    for _ in range(3):
        _, _, _, _, info = env.step(0)
        assert set(info) == keys
        assert all(isinstance(value, bool | int | float) for value in info.values())


def test_the_script_runs(library, run_script):
    assert run_script("tianshou_collect.py").startswith("4 episodes, returns [[")
