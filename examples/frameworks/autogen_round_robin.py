"""AutoGen AgentChat: a solver with tools and a critic take turns until the critic approves.

Needs autogen-agentchat and autogen-ext[openai].
"""

from arithmetic import NUMBERS, TASKS, is_right, numbers, one_of, solution
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

from pettingllms.workflows import Workflow, call_text

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def run(task, client):
    """Return what was last said before the critic approved, or nothing."""

    def model(role):
        return OpenAIChatCompletionClient(
            model=role, base_url=client.base_url, api_key=client.api_key, model_info=INFO
        )

    models = [model("solver"), model("critic")]
    solver = AssistantAgent(
        "solver", model_client=models[0], tools=[add, multiply], system_message="Use a tool."
    )
    critic = AssistantAgent(
        "critic", model_client=models[1], system_message="Say APPROVE, or what is wrong."
    )
    ends = TextMentionTermination("APPROVE") | MaxMessageTermination(6)
    team = RoundRobinGroupChat([solver, critic], termination_condition=ends)
    said = [message.to_text() for message in (await team.run(task=task)).messages]
    for each in models:
        await each.close()
    return said[-2] if "APPROVE" in said[-1] else None


def right(task, agent, messages, rng):
    """Call the tool; approve of what is right."""
    a, b = numbers(task)
    if agent == "solver_0":
        return call_text("add" if "+" in task else "multiply", a=a, b=b)
    return "APPROVE" if solution(task) in messages[-1]["content"] else "Wrong."


ANSWERS = {
    "solver_0": [call_text("add", a=1, b=2), call_text("multiply", a=2, b=2), *NUMBERS],
    "critic_0": ["APPROVE", "Wrong."],
}

workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("solver", "critic"),
    tasks=TASKS,
    max_turns=4,
    demonstrators={"right": right, "any": one_of(ANSWERS)},
)
