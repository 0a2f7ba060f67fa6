"""A workflow is an environment: it steps, forks by re-execution, ends, and fails by branches."""

import asyncio
import itertools
import json
import multiprocessing
import pickle
import signal
import threading
import time
import tomllib
from pathlib import Path

import numpy as np
import openai
import pytest

import pettingllms
from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument
from pettingllms.testing import CheckStatus
from pettingllms.testing.conformance import examine_env
from pettingllms.workflows import (
    Score,
    Workflow,
    WorkflowDiverged,
    WorkflowEnv,
    WorkflowFailure,
    WorkflowTimeout,
    definition,
    isolation,
)
from pettingllms.workflows.endpoint import shared_endpoint
from pettingllms.workflows.env import _RUNS

SCRIPTS = tomllib.loads(Path(__file__).with_name("scripts.toml").read_text(encoding="utf-8"))


def test_requests_are_turns_of_agents(opened):
    env = opened()
    assert env.agent_selection == "planner_0"
    assert env.messages("planner_0") == [{"role": "user", "content": f"aim at {env.state().task}"}]
    assert str(env.observe("planner_0")) == f"aim at {env.state().task}"
    env.step("2")
    assert env.agent_selection == "worker_0"
    assert env.messages("worker_0")[0]["content"] == "the planner said 2"
    assert env.rewards == {"planner_0": 0.0, "worker_0": 0.0}
    env.step(str(int(env.state().task) - 2))
    assert env.terminations == {"planner_0": True, "worker_0": True}
    assert env.rewards == {"planner_0": 1.0, "worker_0": 1.0}
    assert env.infos["worker_0"]["success"]


def test_forks_run_the_workflow_again_with_the_recorded_answers(opened, ask):
    starts = itertools.count()

    def run(task, client):
        next(starts)
        return int(ask(client, "planner", "a")) * int(ask(client, "worker", "b"))

    env = opened(run, reward=lambda task, outcome: outcome)
    env.step("3")
    forks = [env.fork() for _ in range(3)]
    for number, fork in enumerate(forks):
        fork.step(str(number))
    assert [fork.rewards["worker_0"] for fork in forks] == [0.0, 3.0, 6.0]
    assert next(starts) == 3, "the waiting run serves one fork, the two others run again"


def test_expected_forks_run_at_the_same_time(opened, ask):
    barrier = threading.Barrier(3)

    def run(task, client):
        answer = ask(client, "planner", "a")
        barrier.wait(60)
        return answer

    env = opened(run, reward=lambda task, outcome: float(len(outcome)))
    texts = ("x", "xx", "x")
    env.expect(texts)
    forks = [env.fork() for _ in texts]
    for fork, text in zip(forks, texts, strict=True):
        fork.step(text)
    assert [fork.rewards["planner_0"] for fork in forks] == [1.0, 2.0, 1.0]


def test_a_run_that_asks_something_else_when_repeated_fails_its_branch_only(opened, ask):
    starts = itertools.count()

    def run(task, client):
        number = next(starts)
        return ask(client, "planner", "same" if number < 1 else f"other {number}")

    env = opened(run, reward=lambda task, outcome: 1.0)
    fork, twin = env.fork(), env.fork()
    fork.step("a")
    assert fork.rewards["planner_0"] == 1.0
    with pytest.raises(WorkflowDiverged, match=r"'other 1'.*instead of.*'same'"):
        twin.step("b")


def pays_undeclared(ask, client):
    ask(client)
    client.reward(1.0)


@pytest.mark.parametrize(
    ("run", "reward", "told"),
    [
        (lambda ask, client: int(ask(client)), 1.0, "the workflow raised ValueError"),
        (lambda ask, client: 0, 1.0, "ended without a request"),
        (pays_undeclared, 1.0, "step_rewards=True"),
        *(
            (lambda ask, client: ask(client), value, "the reward function returned")
            for value in ("much", None, float("nan"))
        ),
    ],
)
def test_a_workflow_that_does_what_it_must_not_fails(opened, ask, run, reward, told):
    with pytest.raises(WorkflowFailure, match=told) as caught:
        opened(lambda task, client: run(ask, client), reward=lambda *_: reward).step("no number")
    assert "raised" not in told or isinstance(caught.value.__cause__, ValueError)


def test_a_hung_workflow_times_out(opened, ask):
    stop = threading.Event()

    def run(task, client):
        ask(client, "planner", "a")
        stop.wait(60)

    env = opened(run)
    object.__setattr__(env.workflow, "timeout_s", 0.2)  # its beginning may take its time
    with pytest.raises(WorkflowTimeout, match=r"ended within 0.2 s after 1 answer "):
        env.step("x")
    stop.set()


def eventually(found):
    deadline = time.monotonic() + 60
    while not found and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def forget_while_locks_are_held(env):
    """As a garbage collection may, in any thread."""
    states = [env._state]
    ((run,),) = _RUNS._kept[id(env._state)].values()
    env.reset(seed=4)
    with _RUNS._lock, run._changed:
        forgetting = threading.Thread(target=states.clear, daemon=True)
        forgetting.start()
        forgetting.join(60)
        assert not forgetting.is_alive()


@pytest.mark.parametrize(
    "leave", [lambda env: env.reset(seed=4), lambda env: env.close(), forget_while_locks_are_held]
)
def test_forgotten_and_closed_states_end_their_runs(opened, ask, leave):
    ends = []

    def run(task, client):
        try:
            return ask(client, "planner", "a")
        except openai.APIStatusError as error:
            ends.append(error.status_code)
            raise

    env = opened(run, reward=lambda task, outcome: 1.0)
    leave(env)
    assert eventually(ends) == [410]
    env.step("it is run again")
    assert env.rewards["planner_0"] == 1.0


@pytest.fixture
def interrupts():
    """Whatever started the tests may ignore them, as shells do for what runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_step_ends_its_run_and_can_be_repeated(opened, ask):
    ends, was_interrupted = [], threading.Event()

    def run(task, client):
        ask(client, "planner", "a")
        if not was_interrupted.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            was_interrupted.wait(60)
        try:
            return ask(client, "worker", "b")
        except openai.APIStatusError as error:
            ends.append(error.status_code)
            raise

    env = opened(run, reward=lambda task, outcome: 1.0)
    with pytest.raises(KeyboardInterrupt):
        env.step("x")
    was_interrupted.set()
    assert eventually(ends) == [410]
    for text in ("x", "y"):
        env.step(text)
    assert env.rewards["worker_0"] == 1.0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_an_endpoint_and_runs_of_its_own(opened):
    """It has none of the threads that it would wait for, whatever these held."""
    env = opened()
    env.step("2")
    isolation.shared_loop()
    client = definition._shared()
    (run,) = [one for one in shared_endpoint()._runs.values() if one._workflow is env.workflow]
    holds, may_go = threading.Event(), threading.Event()

    def hold():
        with run._changed:
            with isolation._INSTALLING:
                holds.set()
                time.sleep(0.3)
            may_go.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(60)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def play():
        for one in (env, opened()):
            for text in ("2", "3")[one is env :]:
                one.step(text)
            theirs.send(one.rewards["worker_0"])
        waits = asyncio.sleep(0, "a loop")
        theirs.send(asyncio.run_coroutine_threadsafe(waits, isolation.shared_loop()).result(60))
        # On one connection each would read what others are told.
        theirs.send(definition._shared() is client)

    process = context.Process(target=play, daemon=True)
    process.start()
    may_go.set()
    holder.join()
    found = [ours.recv() for _ in range(4) if ours.poll(60)]
    process.join(60)
    process.kill()
    assert found == [1.0, 1.0, "a loop", False]
    assert process.exitcode == 0
    env.step("4")
    assert env.rewards["worker_0"] == 0.0


def test_rewards_of_single_answers(opened, ask):
    def run(task, client):
        for model in ("planner", "worker"):
            text = ask(client, model, "go")
            client.reward(
                len(text) / 10, team=2.0, parse_error="too long" if len(text) > 3 else None
            )
        return 1

    env = opened(run, step_rewards=True, reward=lambda task, outcome: outcome)
    twin = env.fork()
    for played in (env, twin):
        played.step("xx")
        assert played.rewards == {"planner_0": 2.2, "worker_0": 2.0}
        assert played.infos["planner_0"]["reward_parts"] == {"team": 2.0, "local": 0.2}
        again = played.fork()
        again.step("yyyyy")
        played.step("yyyyy")
        for end in (again, played):
            assert end.rewards == {"planner_0": 3.0, "worker_0": 3.5}
            assert end.infos["worker_0"]["parse_error"] == "too long"
            assert end.infos["worker_0"]["success"]


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (np.float64(1.0), Score(1.0, success=True)),
        (np.float32(1), Score(1.0, success=True)),
        (np.int64(1), Score(1.0, success=True)),
        (np.True_, Score(1.0, success=True)),
        (np.array(0.5), Score(0.5, success=False)),
        (Score(np.float32(2), np.bool_(0)), Score(2.0, success=False)),
    ],
    ids=repr,
)
def test_rewards_of_other_libraries_are_numbers(opened, value, score, ask):
    tasks = {"train": [{"n": np.int64(3), "p": [np.float32(0.5), np.True_]}]}

    def run(task, client):
        ask(client, "planner", "a")
        client.reward(np.float32(0.25))

    env = opened(run, reward=lambda *_: value, tasks=tasks, step_rewards=True)
    env.step("x")
    reward, success = env.rewards["planner_0"], env.infos["planner_0"]["success"]
    assert (reward, success) == (score.reward + 0.25, score.success)
    assert json.loads(json.dumps([reward, env.infos])) == [reward, env.infos]


def test_endless_workflows_are_truncated(opened, ask):
    def run(task, client):
        while True:
            ask(client, "planner", "more")

    env = opened(run, max_turns=2)
    for _ in range(4):
        env.step("x")
    assert env.truncations["planner_0"]
    assert not env.terminations["planner_0"]


def test_equal_seeds_give_equal_episodes(opened, ask):
    def run(task, client):
        return ask(client, "planner", f"{task} {client.seed}")

    one, two, other = opened(run, seed=1), opened(run, seed=1), opened(run, seed=2)
    assert one.state_hash() == two.state_hash() != other.state_hash()
    assert one.level_hash() == two.level_hash()


def test_states_travel_and_are_run_again_there(opened):
    env = opened()
    env.step("2")
    twin = pickle.loads(pickle.dumps(env))
    snapshot = pickle.loads(pickle.dumps(env.snapshot()))
    other = opened(seed=9)
    other.restore(snapshot)
    for played in (env, twin, other):
        played.step("3")
    assert env.state_hash() == twin.state_hash() == other.state_hash()


def test_tasks_are_copies(opened, ask):
    def run(task, client):
        task.append(ask(client, "planner", str(task)))
        return task

    env = opened(
        run, tasks=lambda rng, split: [split], reward=lambda task, outcome: len(outcome) - len(task)
    )
    env.fork().step("x")
    env.step("y")
    assert env.rewards["planner_0"] == 1.0


def test_workflows_are_made_by_id(monkeypatch, tmp_path):
    (tmp_path / "own_team.py").write_text(SCRIPTS["own_team"])
    monkeypatch.chdir(tmp_path)
    env = pettingllms.make("workflow:own_team:make", arguments={"letter": "q"})
    env.reset(seed=0)
    assert env.last()[0] == "q"
    for path, told in (("own_team:other", "is a int"), ("own_team:none", "no attribute")):
        with pytest.raises(EnvironmentNotLoadable, match=told):
            pettingllms.make(f"workflow:{path}")
    with pytest.raises(EnvironmentNotLoadable, match="or in the working directory, "):
        pettingllms.make("workflow:no_team:make")
    with pytest.raises(InvalidArgument, match=r"package\.module:Name"):
        pettingllms.make("workflow:own_team")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"roles": ()}, "stages"),
        ({"roles": ("planner 1",)}, "stages"),
        ({"roles": "planner"}, "roles of the workflow"),
        ({"tasks": {"dev": []}}, "tasks of the workflow"),
        ({"max_turns": 0}, "max_turns"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"reward": 3}, "reward of the workflow"),
        ({"tasks": {"train": [object()]}}, "JSON data"),
        ({"tasks": {"test": [1]}}, "split"),
        ({"misfit_errors": LookupError}, "misfit_errors"),
        ({"misfit_errors": (3,)}, "misfit_errors"),
        ({"misfit_errors": (KeyboardInterrupt,)}, "misfit_errors"),
    ],
)
def test_ill_formed_workflows_are_refused(opened, fields, told):
    with pytest.raises(InvalidArgument, match=told):
        opened(**fields)


def test_a_split_without_tasks_is_refused(opened):
    with pytest.raises(InvalidArgument, match="train, test"):
        WorkflowEnv(opened().workflow, split="validation")


@pytest.mark.usefixtures("small_kit")
def test_a_workflow_keeps_the_contract_of_environments(ask):
    def run(task, client):
        first = ask(client, "one", task)
        return first + ask(client, "two", f"{task} {first}")

    spelled = Workflow(
        run=run,
        reward=lambda task, outcome: outcome == task,
        roles=("one", "two"),
        tasks={"train": list("abcdefgh"), "test": list("ijkl")},
        demonstrators={"right": lambda task, agent, messages, rng: task * (agent == "one_0")},
    )
    found = {f.check: f for f in examine_env(WorkflowEnv, workflow=spelled).findings}
    assert [f for f in found.values() if f.status is CheckStatus.BROKEN] == []
    assert found["any_text"].status is found["splits"].status is CheckStatus.KEPT
