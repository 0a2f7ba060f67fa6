"""The battery over the registry: an environment is tested by being registered.

Its variants (teams, tools, sizes) stand in the table `VARIANTS`.
"""

import random

import pytest

import pettingllms
from pettingllms.testing import HOSTILE_TEXTS, CheckStatus, check_env, play
from pettingllms.testing.play import mixed_actor
from pettingllms.transcript import RecordTranscripts

PLANNING = [
    {},
    {"team": "proposer-planner"},
    {"team": "single", "observation_mode": "delta"},
    {"team": "single-tool"},
]
VARIANTS = {
    "blocksworld_v0": [*PLANNING, {"difficulty": "extreme"}],
    "dining_v0": [
        {"philosophers": 4, "meals": 2},
        {"observation_mode": "delta", "alpha": 0.5, "sight": 1},
    ],
    "fireworks_v0": [
        {},
        {"difficulty": "hard", "observation_mode": "delta", "alpha": 0.5},
        {"difficulty": "extreme"},
    ],
    "queens_v0": [*PLANNING, {"difficulty": "extreme"}],
    "code_v0": [
        {},
        {"team": "single"},
        {"tests_per_turn": 3, "observation_mode": "delta"},
    ],
    "math_v0": [
        {},
        {"team": "single"},
        {"team": "single-tool", "observation_mode": "delta"},
        {"team": "tool-reasoner"},
    ],
    "math_ensemble_v0": [{}, {"reasoners": 1, "tools": 0, "max_turns": 3}],
    "panel_v0": [
        {},
        {"difficulty": "expert", "observation_mode": "delta", "alpha": 0.5},
        {"difficulty": "extreme"},
    ],
    "relay_v0": [
        {},
        {"difficulty": "hard", "observation_mode": "delta", "alpha": 0.5},
        {"difficulty": "extreme"},
    ],
    "search_v0": [
        {},
        {"style": "letters", "documents": 12, "observation_mode": "delta"},
        {"difficulty": "expert"},
        {"difficulty": "extreme"},
    ],
    "sokoban_v0": [
        {},
        {"observation_mode": "delta", "split": "test"},
        {"team": "proposer-planner", "rows": 5, "cols": 12, "alpha": 0.5},
        {"team": "single", "size": 8, "boxes": 3, "moves_per_turn": 5, "max_turns": 8},
        {"team": "single", "stop_when_lost": False, "split": None},
        {"team": "single-tool"},
        {"difficulty": "extreme"},
        {"team": "single-tool", "rules": 2, "size": 7, "observation_mode": "delta"},
    ],
    "sudoku_v0": [
        {},
        {"size": 6, "observation_mode": "delta", "split": "test"},
        {"team": "proposer-planner", "max_turns": 2},
        {"team": "single", "size": 9, "clues": 28, "alpha": 0.5},
        {"team": "single-tool"},
        {"team": "single-tool", "observation_mode": "delta"},
        {"size": 6, "rules": 3, "observation_mode": "delta"},
    ],
    "plan_path_v0": [
        {},
        {"tool": "call", "view": "centred", "split": "test", "alpha": 0.5},
        {"team": "proposer-planner", "rows": 5, "cols": 12, "observation_mode": "delta"},
        {"team": "single", "view": "centred", "size": 4},
        {"team": "single-tool"},
        {"team": "single-tool", "tool": "call", "size": 64},
        {"difficulty": "extreme"},
        {"team": "single-tool", "tool": "call", "rules": 2, "view": "centred"},
    ],
}

# The defaults of each game by day, all variants at night: together they take minutes.
CASES = [
    pytest.param(
        env_id,
        kwargs,
        id="-".join([env_id, *map(str, kwargs.values())]),
        marks=[pytest.mark.nightly] if number > 0 else [],
    )
    for env_id in pettingllms.registered_ids()
    for number, kwargs in enumerate(VARIANTS.get(env_id, [{}]))
]


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_keeps_the_contract(env_id, kwargs, monkeypatch):
    # A figure for the report, which nothing is asked of: a rough one will do.
    monkeypatch.setattr("pettingllms.testing.incentives.CONTINUATIONS", 1)
    report = check_env(env_id, **kwargs)
    assert "page" in {finding.check for finding in report.of(CheckStatus.KEPT)}


@pytest.mark.parametrize("env_id", pettingllms.registered_ids())
def test_recorded_episodes_replay(env_id):
    env = RecordTranscripts(pettingllms.make(env_id))
    player = mixed_actor(random.Random(0))
    for seed in range(3):
        env.reset(seed=seed)
        raw = env.unwrapped
        while not any(raw.terminations.values()) and not any(raw.truncations.values()):
            env.step(player(raw, raw.agent_selection))
        assert env.transcript.replay().state_hash() == raw.state_hash()


@pytest.mark.parametrize("env_id", pettingllms.registered_ids())
def test_hostile_answers_of_several_kinds_in_one_episode_raise_nothing(env_id):
    env = pettingllms.make(env_id, checks=False)
    rng = random.Random(1)
    for seed in range(10):
        env.reset(seed=seed)
        play(env, lambda _env, _agent: rng.choice(HOSTILE_TEXTS))
