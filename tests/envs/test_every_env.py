"""The battery over the registry: an environment is tested by being registered.

Its variants (teams, tools, sizes) stand in `variants.json`.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import pettingllms
from pettingllms.testing import CheckStatus, check_env
from pettingllms.testing.play import mixed_actor
from pettingllms.transcript import RecordTranscripts

VARIANTS = json.loads(Path(__file__).with_name("variants.json").read_text("utf-8"))

CASES = [
    pytest.param(
        *(env_id, kwargs, is_small),
        id="-".join([env_id, *map(str, kwargs.values())]) + "-small" * is_small,
        marks=[] if is_small else [pytest.mark.nightly],
    )
    for env_id in pettingllms.registered_ids()
    for number, kwargs in enumerate(VARIANTS.get(env_id, [{}]))
    for is_small in ([True, False] if number == 0 else [False])
]


@pytest.mark.parametrize(("env_id", "kwargs", "is_small"), CASES)
def test_keeps_the_contract(env_id, kwargs, is_small, request):
    if is_small:
        request.getfixturevalue("small_kit")
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


# What others import for the system that they are on is imported before it is another one.
PROGRAM = Path(__file__).with_name("no_sandbox.txt").read_text("utf-8")
RUNS_PROGRAMS = {
    "blocksworld_v0", "code_v0", "math_v0", "plan_path_v0", "queens_v0", "sokoban_v0", "sudoku_v0",
}  # fmt: skip
"""In their first two actions."""


def test_every_environment_is_made_where_there_is_no_sandbox():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    refused = {name for name, words in said.items() if words != "plays"}
    assert refused == RUNS_PROGRAMS, "a tool agent's program, or a verdict"
    assert all("WSL 2" in said[name] for name in refused)
