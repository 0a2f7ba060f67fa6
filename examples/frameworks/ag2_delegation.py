"""AG2 from 1.0 on: a lead delegates to a solver, which has a tool.

Needs ag2[openai]>=1.
"""

from ag2 import Agent, tool
from ag2.config import OpenAIConfig
from arithmetic import NUMBERS, TASKS, is_right, numbers, one_of, solution

from pettingllms.workflows import Workflow, call_text


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
async def multiply(a: int, b: int) -> str:
    """Multiply two numbers."""
    return str(a * b)


async def run(task, client):
    """Ask the lead, who may ask the solver."""

    def config(role):
        return OpenAIConfig(model=role, base_url=client.base_url, api_key=client.api_key)

    solver = Agent(
        "solver", prompt="Use a tool, then answer.", config=config("solver"), tools=[add, multiply]
    )
    lead = Agent(
        "lead",
        prompt="Delegate the task, then say the result.",
        config=config("lead"),
        tools=[solver.as_tool(description="Does arithmetic.")],
    )
    return (await lead.ask(task)).body


def right(task, agent, messages, rng):
    """Delegate, call the tool, and say what it returned."""
    if "<tool_response>" in messages[-1]["content"]:
        return solution(task)
    if agent == "lead_0":
        return call_text("task_solver", objective=task)
    a, b = numbers(task)
    return call_text("add" if "+" in task else "multiply", a=a, b=b)


ANSWERS = {
    "lead_0": [*[call_text("task_solver", objective=task) for task in ("1+2", "2*2")], *NUMBERS],
    "solver_0": [call_text("add", a=1, b=2), call_text("multiply", a=2, b=2), *NUMBERS],
}

workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("lead", "solver"),
    tasks=TASKS,
    max_turns=3,
    demonstrators={"right": right, "any": one_of(ANSWERS)},
)
