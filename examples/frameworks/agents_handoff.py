"""OpenAI Agents SDK: a triage agent hands off to a solver, which has a tool.

Needs openai-agents.
"""

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from agents.exceptions import ModelBehaviorError
from arithmetic import NUMBERS, TASKS, is_right, numbers, one_of, solution

from pettingllms.workflows import Workflow, call_text


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function_tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def run(task, client):
    """Begin with the triage agent; whoever answers without a call ends the run."""
    async with client.async_openai() as chat:

        def model(role):
            return OpenAIResponsesModel(model=role, openai_client=chat)

        solver = Agent(
            name="solver",
            instructions="Use a tool, then answer.",
            handoff_description="Does arithmetic.",
            model=model("solver"),
            tools=[add, multiply],
        )
        triage = Agent(
            name="triage",
            instructions="Hand questions to the agent who can answer them.",
            model=model("triage"),
            handoffs=[solver],
        )
        config = RunConfig(tracing_disabled=True)
        return (await Runner.run(triage, task, run_config=config)).final_output


def right(task, agent, messages, rng):
    """Hand off, call the tool, and say what it returned."""
    if agent == "triage_0":
        return call_text("transfer_to_solver")
    if messages[-1]["content"] == f"<tool_response>\n{solution(task)}\n</tool_response>":
        return solution(task)
    a, b = numbers(task)
    return call_text("add" if "+" in task else "multiply", a=a, b=b)


ANSWERS = {
    "triage_0": [call_text("transfer_to_solver"), *NUMBERS],
    "solver_0": [call_text("add", a=1, b=2), call_text("multiply", a=2, b=2), *NUMBERS],
}

workflow = Workflow(
    run=run,
    reward=is_right,
    # The SDK raises where an answer was cut at the limit of tokens.
    misfit_errors=(ModelBehaviorError,),
    roles=("triage", "solver"),
    tasks=TASKS,
    max_turns=3,
    demonstrators={"right": right, "any": one_of(ANSWERS)},
)
