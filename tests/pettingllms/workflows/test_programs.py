"""Files that know nothing of this project play, fork and replay as they are; so do teams."""

import importlib.util
import random
import re
import tomllib
from pathlib import Path

import pytest

import pettingllms
from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument
from pettingllms.transcript import RecordTranscripts
from pettingllms.types import Action, role_of
from pettingllms.workflows import WorkflowFailure
from pettingllms.workflows.program import Program
from pettingllms.workflows.proposal import seen_agents

HERE = Path(__file__).parent
TEAMS = HERE.parents[2] / "examples" / "frameworks"
PROGRAMS, SCRIPTS = (
    tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
    for name in ("programs", "scripts")
)

pytestmark = pytest.mark.usefixtures("others_program")


def made(name, **fields):
    told = PROGRAMS[name]
    if "function" not in told:
        return pettingllms.make(f"workflow:{TEAMS}/{name}.py:workflow", checks=False)
    table = {
        "roles": told["roles"],
        "tasks": {"train": [told["task"]]},
        "reward": f"{HERE}/programs/worth.py:longest",
        "timeout_s": 60.0,
        **fields,
    }
    return pettingllms.make(
        f"workflow:{HERE}/programs/{name}.py:{told['function']}", program=table, checks=False
    )


@pytest.fixture
def outcomes(monkeypatch):
    """What the runs of programs have returned."""
    found, called = [], Program.__call__

    def noted(*arguments):
        found.append(called(*arguments))
        return found[-1]

    monkeypatch.setattr(Program, "__call__", noted)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_plays_forks_and_replays(name, outcomes):
    told = PROGRAMS[name]
    file = (HERE / "programs" if "function" in told else TEAMS) / f"{name}.py"
    for package in re.findall(r"^(?:from|import) (\w+)", file.read_text(), re.MULTILINE):
        if not (file.with_name(f"{package}.py").exists() or importlib.util.find_spec(package)):
            pytest.skip(f"{package} is not here; make test-workflows installs it")
    env = RecordTranscripts(made(name))
    env.reset(seed=1)
    texts = {role: iter(said) for role, said in told.get("texts", {}).items()}
    while not any(env.terminations.values()):
        agent = env.agent_selection
        before = env.state_hash()
        for _ in range(2):
            fork = env.fork()
            fork.step("another")  # goes on from here, fails, or asks somebody else
        text = (
            next(texts[role_of(agent)])
            if texts
            else env.scripted_action(agent, "right", random.Random(0))
        )
        outcomes.clear()
        env.step(text)
        assert env.state_hash() != before
    reward = env.rewards[env.agent_selection]
    if texts:
        assert told["outcome"] in outcomes
    assert reward == (len(told["outcome"]) / 100 if texts else 1)
    assert env.transcript.replay().rewards[env.agent_selection] == reward


@pytest.mark.parametrize(
    ("name", "proposed"),
    [
        (
            "handoff",
            {
                "triage_agent": {"agent": "Triage agent"},
                "spanish_agent": {"agent": "Spanish agent"},
                "english_agent": {"agent": "English agent"},
            },
        ),
        ("parallel_map", {"agent1": {"model": "small"}, "agent2": {"model": "large"}}),
        ("blocking", {"agent1": {"model": "a"}, "agent2": {"model": "b"}}),
        ("judge_loop", {"writer": {"agent": "Writer"}, "judge": {"agent": "Judge"}}),
    ],
)
def test_a_dry_run_proposes_who_asks(name, proposed):
    told = PROGRAMS[name]
    seen = seen_agents(f"{HERE}/programs/{name}.py:{told['function']}", told["task"])
    assert {one.role: one.told_by for one in seen} == proposed
    # What is proposed tells the agents apart.
    env = made(name, roles=proposed)
    env.reset(seed=0)
    assert role_of(env.agent_selection) == next(iter(proposed))


def test_a_dry_run_calls_what_takes_a_tree(tmp_path):
    node = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
    tree = {"type": "object", "properties": {"left": node}}
    parameters = {**tree, "$defs": {"node": tree}}
    tool = {"type": "function", "function": {"name": "grow", "parameters": parameters}}
    file = tmp_path / "gardener.py"
    body = {"model": "gardener", "messages": [{"role": "user", "content": "grow"}], "tools": [tool]}
    file.write_text(
        "from openai import OpenAI\n\n"
        f"def main(text):\n    OpenAI().chat.completions.create(**{body})\n"
    )
    (seen,) = seen_agents(f"{file}:main", "grow")
    assert seen.told_by == {"model": "gardener"}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"roles": {"a": {"model": "other"}}}, "no role of the table fits sender 1 of the run"),
        ({"roles": {"a": {"prompt": "x"}}}, "system, agent and model"),
        ({"roles": {"a": {"order": "1"}}}, "system, agent and model"),
        ({"roles": {"a": 3}}, "role a of the workflow"),
        ({"clock": "noon"}, "2026-01-01T12:00"),
        ({"rewards": "x"}, "key of the program"),
        ({"reward": f"{HERE}/programs/worth.py:none"}, "cannot be loaded"),
        ({"tasks": f"{HERE}/programs/worth.py:none"}, "cannot be loaded"),
    ],
)
def test_an_ill_formed_program_is_refused(fields, told):
    with pytest.raises((InvalidArgument, EnvironmentNotLoadable, WorkflowFailure), match=told):
        made("blocking", **fields).reset(seed=0)


def test_a_program_without_a_table_is_told_what_to_do():
    with pytest.raises(InvalidArgument, match=r"pettingllms-train workflow:.*blocking\.py:run"):
        pettingllms.make(f"workflow:{HERE}/programs/blocking.py:run", program={})


def test_tasks_may_be_drawn_and_other_addresses_asked(tmp_path):
    (tmp_path / "elsewhere.py").write_text(SCRIPTS["elsewhere"])
    table = {
        "roles": {"x": {}},
        "tasks": f"{HERE}/programs/worth.py:draw",
        "reward": f"{HERE}/programs/worth.py:longest",
        "addresses": ["http://localhost:11434/v1"],
        "environ": {"WHO": "me"},
    }
    env = pettingllms.make(f"workflow:{tmp_path}/elsewhere.py:run", program=table)
    env.reset(seed=0)
    assert env.messages("x_0")[-1]["content"] == "me"
    env.step("!")
    assert env.rewards["x_0"] in (0.05, 0.06)


def test_an_answer_that_ends_a_program_leaves_no_turn_to_others_that_wait():
    """One of three is cut and its SDK raises, of which the thread of the run learns later."""
    errors = ["agents.exceptions:ModelBehaviorError"]
    env = made("parallelization", misfit_errors=errors, misfit_reward=-1.0)
    for _ in range(20):
        env.reset(seed=0)
        env.step(Action("", finish_reason="length"))
        assert env.terminations["translator_0"]
        assert env.rewards["translator_0"] == -1.0
