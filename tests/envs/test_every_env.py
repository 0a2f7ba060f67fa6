"""The battery over the registry: an environment is tested by being registered.

Its variants (teams, tools, sizes) stand in `variants.json`.
"""

import json
import random
from pathlib import Path

import pytest

import pettingllms
from pettingllms.testing import CheckStatus, check_env
from pettingllms.testing.play import mixed_actor
from pettingllms.transcript import RecordTranscripts

VARIANTS = json.loads(Path(__file__).with_name("variants.json").read_text("utf-8"))

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
