"""Small workflows, and a way to open them as environments."""

import pytest

from pettingllms.workflows import Workflow, WorkflowEnv


def ask(client, model, text, **more):
    """Return what a role answers to one text."""
    found = client.openai().chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], **more
    )
    return found.choices[0].message.content


def sum_up(task, client):
    """A planner names a number, a worker adds one; the task is the wanted sum."""
    first = ask(client, "planner", f"aim at {task}")
    return int(ask(client, "worker", f"the planner said {first}")) + int(first)


@pytest.fixture
def opened():
    """Return a function from the code of a workflow to its environment, which has been reset."""

    def make(run=sum_up, seed=3, **fields):
        given = {
            "run": run,
            "reward": lambda task, outcome: float(outcome == task),
            "roles": ("planner", "worker"),
            "tasks": {"train": [5, 7], "test": [6]},
            "timeout_s": 20.0,
            **fields,
        }
        env = WorkflowEnv(Workflow(**given))
        env.reset(seed=seed)
        return env

    return make
