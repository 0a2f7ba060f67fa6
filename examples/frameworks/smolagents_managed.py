"""smolagents: a manager calls a managed agent, which calls a tool; every answer is a forced call.

Needs smolagents[openai].
"""

from arithmetic import NUMBERS, TASKS, is_right, numbers, one_of, solution
from smolagents import OpenAIModel, ToolCallingAgent, tool

from pettingllms.workflows import Workflow, call_text


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a * b


def run(task, client):
    """Return the manager's final answer."""

    def model(role):
        return OpenAIModel(model_id=role, api_base=client.base_url, api_key=client.api_key)

    solver = ToolCallingAgent(
        tools=[add, multiply],
        model=model("solver"),
        name="solver",
        description="Does arithmetic.",
        max_steps=3,
        verbosity_level=0,
    )
    manager = ToolCallingAgent(
        tools=[],
        model=model("manager"),
        managed_agents=[solver],
        max_steps=3,
        verbosity_level=0,
    )
    return manager.run(task)


def final(answer):
    """Return the call that ends an agent's work."""
    return call_text("final_answer", answer=answer)


def right(task, agent, messages, rng):
    """Delegate, call the tool, and give the result as final answer."""
    last = messages[-1]["content"]
    if agent == "manager_0":
        return (
            final(solution(task))
            if "solver" in last
            else call_text("solver", task=task, additional_args={})
        )
    a, b = numbers(task)
    called = call_text("add" if "+" in task else "multiply", a=a, b=b)
    return final(solution(task)) if "Observation" in last else called


ANSWERS = {
    "manager_0": [
        *[call_text("solver", task=task, additional_args={}) for task in ("1+2", "2*2")],
        *map(final, NUMBERS),
        "4",
    ],
    "solver_0": [
        call_text("add", a=1, b=2),
        call_text("multiply", a=2, b=2),
        *map(final, NUMBERS),
        "4",
    ],
}

workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("manager", "solver"),
    tasks=TASKS,
    max_turns=3,
    misfit_reward=-0.1,
    demonstrators={"right": right, "any": one_of(ANSWERS)},
)
