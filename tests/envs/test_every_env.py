"""The battery over the registry: an environment is tested by being registered.

Variants of an environment (teams, tools, sizes) stand in its own `battery.json`-like table here.
"""

import random

import pytest

import pettingllms
from pettingllms.testing import HOSTILE_TEXTS, check_documentation, check_env, play
from pettingllms.testing.play import mixed_player
from pettingllms.transcript import RecordTranscripts

VARIANTS = {
    "plan_path_v0": [
        {},
        {"team": "proposer-planner"},
        {"team": "single"},
        {"view": "centred", "size": 5},
        {"size": 16, "moves_per_turn": 20},
        {"observation_mode": "delta"},
        {"split": "test", "alpha": 0.5},
    ],
}

CASES = [
    pytest.param(env_id, kwargs, id="-".join([env_id, *map(str, kwargs.values())]))
    for env_id in pettingllms.registered_ids()
    for kwargs in VARIANTS.get(env_id, [{}])
]


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_keeps_the_contract(env_id, kwargs):
    check_env(env_id, **kwargs)


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_class_docstring_is_true(env_id, kwargs):
    check_documentation(pettingllms.make(env_id, checks=False, **kwargs))


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_recorded_episodes_replay(env_id, kwargs):
    env = RecordTranscripts(pettingllms.make(env_id, **kwargs))
    player = mixed_player(random.Random(0))
    for seed in range(3):
        env.reset(seed=seed)
        raw = env.unwrapped
        while not any(raw.terminations.values()) and not any(raw.truncations.values()):
            env.step(player(raw, raw.agent_selection))
        assert env.transcript.replay().state_hash() == raw.state_hash()


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_thousands_of_hostile_steps_raise_nothing(env_id, kwargs):
    env = pettingllms.make(env_id, checks=False, **kwargs)
    rng = random.Random(1)
    texts = [*HOSTILE_TEXTS]
    for seed in range(10):
        env.reset(seed=seed)
        play(env, lambda _env, _agent: rng.choice(texts))
