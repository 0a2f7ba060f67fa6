"""Small workflows, and ways to open and play them as environments."""

import pytest

from pettingllms.workflows import Workflow, WorkflowEnv


def asking(client, model="planner", text="go", **more):
    """Return what a role answers to one text."""
    messages = [{"role": "user", "content": text}]
    found = client.openai().chat.completions.create(model=model, messages=messages, **more)
    return found.choices[0].message.content


def sum_up(task, client):
    """A planner names a number, a worker adds one; the task is the wanted sum."""
    first = asking(client, "planner", f"aim at {task}")
    return int(asking(client, "worker", f"the planner said {first}")) + int(first)


@pytest.fixture
def ask():
    return asking


@pytest.fixture
def opened():
    """Return a function from the code of a workflow to its environment, which has been reset."""

    def make(run=sum_up, seed=3, **fields):
        given = {
            "run": run,
            "reward": lambda task, outcome: float(outcome == task),
            "roles": ("planner", "worker"),
            "tasks": {"train": [5, 7], "test": [6]},
            "timeout_s": 60.0,
            **fields,
        }
        env = WorkflowEnv(Workflow(**given))
        env.reset(seed=seed)
        return env

    return make


@pytest.fixture
def played(opened):
    """Return a function that plays `run(client)` with answers: what was asked, and its outcome."""

    def play(run, *texts, **fields):
        outcomes = []

        def noted(task, client):
            outcomes.append(run(client))
            return outcomes[-1]

        env = opened(noted, reward=lambda task, outcome: 1.0, **fields)
        for text in texts:
            env.step(text)
        assert env.terminations[env.agent_selection]
        return [call.request for call in env.state().calls], outcomes[-1]

    return play
