"""Which wrappers of SuperSuit work on texts, and which need numbers."""

import numpy as np
import pytest
from pettingzoo.utils import aec_to_parallel

from pettingllms.adapters.pettingzoo import ParallelView
from pettingllms.adapters.tokenised import TextCodec, TokenisedEnv
from pettingllms.wrappers import ChecksWrapper

LIBRARY = "supersuit"
LIBRARY_DRAWS = True
pytestmark = pytest.mark.filterwarnings("default")

ON_TEXTS = {
    "clip_reward": lambda s, env: s.clip_reward_v0(env, lower_bound=0, upper_bound=0.5),
    "reward_lambda": lambda s, env: s.reward_lambda_v0(env, lambda reward: 2 * reward),
    "observation_lambda": lambda s, env: s.observation_lambda_v0(
        env, lambda observation, space: observation, lambda space: space
    ),
    "action_lambda": lambda s, env: s.action_lambda_v1(
        env, lambda action, space: action, lambda space: space
    ),
    "sticky_actions": lambda s, env: s.sticky_actions_v0(env, 0.5),
    "frame_skip": lambda s, env: s.frame_skip_v0(env, 2),
}
ON_NUMBERS = {
    "frame_stack": lambda s, env: s.frame_stack_v1(env, 2),
    "flatten": lambda s, env: s.flatten_v0(env),
    "dtype": lambda s, env: s.dtype_v0(env, np.float32),
    "pad_observations": lambda s, env: s.pad_observations_v0(env),
    "pad_action_space": lambda s, env: s.pad_action_space_v0(env),
    "agent_indicator": lambda s, env: s.agent_indicator_v0(env),
    "delay_observations": lambda s, env: s.delay_observations_v0(env, 1),
    "nan_zeros": lambda s, env: s.nan_zeros_v0(env),
    "nan_random": lambda s, env: s.nan_random_v0(env),
    "max_observation": lambda s, env: s.max_observation_v0(env, 2),
}


def play(env, action):
    env.reset(seed=1)
    steps = 0
    for _ in env.agent_iter(50):
        observation, _, terminated, truncated, _ = env.last()
        env.step(None if terminated or truncated else action)
        steps += 1
    assert steps > 2
    return observation


def as_numbers(env):
    return TokenisedEnv(env, TextCodec(8, ["1", "2"]))


@pytest.mark.parametrize("wrapper", ON_TEXTS)
def test_these_work_on_texts(library, guess_env, wrapper):
    assert isinstance(play(ON_TEXTS[wrapper](library, ChecksWrapper(guess_env())), "5"), str)


@pytest.mark.parametrize("wrapper", ON_NUMBERS)
def test_these_need_numbers(library, guess_env, wrapper):
    with pytest.raises((AssertionError, AttributeError, TypeError)):
        play(ON_NUMBERS[wrapper](library, ChecksWrapper(guess_env())), "5")
    play(ON_NUMBERS[wrapper](library, as_numbers(guess_env())), 1)


def test_vector_environments_need_numbers(library, guess_env):
    from gymnasium.error import CustomSpaceError

    texts = library.pettingzoo_env_to_vec_env_v1(ParallelView(guess_env(simultaneous=True)))
    texts.reset(seed=1)
    with pytest.raises(CustomSpaceError):
        texts.step(["5", "5"])
    numbers = library.pettingzoo_env_to_vec_env_v1(
        aec_to_parallel(as_numbers(guess_env(simultaneous=True)))
    )
    numbers.reset(seed=1)
    observations, rewards, *_ = numbers.step([1, 1])
    assert observations.shape == (2, 8)
    assert rewards.shape == (2,)


def test_the_script_runs(library, run_script):
    assert "observation (512,)" in run_script("supersuit_wrappers.py")
