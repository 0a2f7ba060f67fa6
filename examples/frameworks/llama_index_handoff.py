"""LlamaIndex: an AgentWorkflow whose planner hands off to a solver with tools; it streams.

Needs llama-index-core and llama-index-llms-openai-like.
"""

from arithmetic import NUMBERS, TASKS, is_right, numbers, one_of, solution
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.llms.openai_like import OpenAILike

from pettingllms.workflows import Workflow, call_text


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def run(task, client):
    """Begin with the planner; whoever answers without a call ends the run."""

    def model(role):
        return OpenAILike(
            model=role,
            api_base=client.base_url,
            api_key=client.api_key,
            is_chat_model=True,
            is_function_calling_model=True,
        )

    planner = FunctionAgent(
        name="planner",
        description="Hands tasks over.",
        system_prompt="Hand the task to the solver.",
        llm=model("planner"),
        can_handoff_to=["solver"],
    )
    solver = FunctionAgent(
        name="solver",
        description="Does arithmetic.",
        system_prompt="Use a tool, then answer.",
        llm=model("solver"),
        tools=[add, multiply],
        can_handoff_to=[],
    )
    team = AgentWorkflow(agents=[planner, solver], root_agent="planner")
    return str(await team.run(user_msg=task)).strip()


HAND_OFF = call_text("handoff", to_agent="solver", reason="arithmetic")


def right(task, agent, messages, rng):
    """Hand off, call the tool, and say what it returned."""
    if agent == "planner_0":
        return HAND_OFF
    if f"<tool_response>\n{solution(task)}\n" in messages[-1]["content"]:
        return solution(task)
    a, b = numbers(task)
    return call_text("add" if "+" in task else "multiply", a=a, b=b)


ANSWERS = {
    "planner_0": [HAND_OFF, *NUMBERS],
    "solver_0": [call_text("add", a=1, b=2), call_text("multiply", a=2, b=2), *NUMBERS],
}

workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("planner", "solver"),
    tasks=TASKS,
    max_turns=3,
    demonstrators={"right": right, "any": one_of(ANSWERS)},
)
