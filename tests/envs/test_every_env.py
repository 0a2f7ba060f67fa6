"""The battery over the registry: an environment is tested by being registered.

Its variants (teams, tools, sizes) stand in the table `VARIANTS`.
"""

import random

import pytest

import pettingllms
from pettingllms.testing import HOSTILE_TEXTS, check_documentation, check_env, play
from pettingllms.testing.play import mixed_actor
from pettingllms.transcript import RecordTranscripts

PLANNING = [
    {},
    {"team": "proposer-planner"},
    {"team": "single", "observation_mode": "delta"},
    {"team": "single-tool"},
]
VARIANTS = {
    "blocksworld_v0": [*PLANNING, {"team": "single", "preset": "expert"}],
    "dining_v0": [
        {},
        {"philosophers": 4, "observation_mode": "delta"},
        {"preset": "expert", "alpha": 0.5},
    ],
    "queens_v0": [*PLANNING, {"team": "single", "preset": "expert"}],
    "code_v0": [
        {},
        {"team": "single"},
        {"tests_per_turn": 3, "observation_mode": "delta"},
    ],
    "math_v0": [
        {},
        {"team": "single"},
        {"team": "single-tool"},
        {"observation_mode": "delta"},
    ],
    "math_ensemble_v0": [{}, {"reasoners": 1, "tools": 0, "max_turns": 3}],
    "panel_v0": [{}, {"observation_mode": "delta"}, {"preset": "expert", "alpha": 0.5}],
    "search_v0": [
        {},
        {"style": "letters", "documents": 12, "observation_mode": "delta"},
        {"preset": "expert"},
    ],
    "sokoban_v0": [
        {},
        {"tool": "call", "boxes": 2},
        {"team": "proposer-planner", "size": 7},
        {"team": "single", "size": 8, "boxes": 3},
        {"team": "single-tool"},
        {"team": "single-tool", "tool": "call", "boxes": 2},
        {"tool": "call", "observation_mode": "delta", "split": "test"},
    ],
    "sudoku_v0": [
        {},
        {"tool": "call", "size": 6},
        {"team": "proposer-planner"},
        {"team": "single", "size": 9},
        {"team": "single", "size": 16},
        {"team": "single-tool"},
        {"team": "single-tool", "tool": "call", "observation_mode": "delta"},
        {"tool": "call", "observation_mode": "delta", "split": "test"},
    ],
    "plan_path_v0": [
        {},
        {"tool": "call"},
        {"team": "proposer-planner"},
        {"team": "single"},
        {"team": "single-tool"},
        {"team": "single-tool", "tool": "call", "view": "centred"},
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
    player = mixed_actor(random.Random(0))
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
