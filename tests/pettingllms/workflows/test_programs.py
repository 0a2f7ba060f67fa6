"""Files that know nothing of this project play, fork and replay as they are."""

import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

import pettingllms
from pettingllms.transcript import RecordTranscripts
from pettingllms.types import role_of
from pettingllms.workflows.program import Program

HERE = Path(__file__).parent
PROGRAMS = tomllib.loads((HERE / "programs.toml").read_text(encoding="utf-8"))

# Programs close nothing; with the loops of `Runner.run_sync` go what they had open.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.setattr("sys.path", [*__import__("sys").path])


def made(name, **fields):
    told = PROGRAMS[name]
    table = {
        "roles": told["roles"],
        "tasks": {"train": [told["task"]]},
        "reward": f"{HERE}/programs/reward.py:longest",
        "timeout_s": 60.0,
        **fields,
    }
    return pettingllms.make(
        f"workflow:{HERE}/programs/{name}.py:{told['function']}", program=table, checks=False
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_plays_forks_and_replays(name, monkeypatch):
    told, outcomes = PROGRAMS[name], []
    called = Program.__call__

    def noted(*arguments):
        outcomes.append(called(*arguments))
        return outcomes[-1]

    monkeypatch.setattr(Program, "__call__", noted)
    env = RecordTranscripts(made(name))
    env.reset(seed=1)
    said = defaultdict(lambda: 0)
    while not any(env.terminations.values()):
        role = role_of(env.agent_selection)
        before = env.state_hash()
        for _ in range(2):
            fork = env.fork()
            fork.step("another")  # goes on from here, fails, or asks somebody else
        text = told["texts"][role][said[role]]
        said[role] += 1
        outcomes.clear()
        env.step(text)
        assert env.state_hash() != before
    assert told["outcome"] in outcomes
    assert env.rewards[env.agent_selection] == len(told["outcome"]) / 100
    replayed = env.transcript.replay()
    assert replayed.rewards[env.agent_selection] == env.rewards[env.agent_selection]
