"""LangChain on LangGraph: one agent that calls tools until it answers.

Needs langchain and langchain-openai.
"""

from arithmetic import NUMBERS, TASKS, is_right, numbers, one_of, solution
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from pettingllms.workflows import Workflow, call_text


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def run(task, client):
    """Let the agent work until it calls no tool."""
    model = ChatOpenAI(model="solver", base_url=client.base_url, api_key=client.api_key)
    agent = create_agent(model, tools=[add, multiply], system_prompt="Use a tool, then answer.")
    found = agent.invoke({"messages": [{"role": "user", "content": task}]})
    return found["messages"][-1].content


def right(task, agent, messages, rng):
    """Call the tool, then say what it returned."""
    if "<tool_response>" in messages[-1]["content"]:
        return solution(task)
    a, b = numbers(task)
    return call_text("add" if "+" in task else "multiply", a=a, b=b)


ANSWERS = {
    "solver_0": [
        call_text("add", a=1, b=2),
        call_text("multiply", a=2, b=2),
        *NUMBERS,
    ],
}

workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("solver",),
    tasks=TASKS,
    max_turns=4,
    demonstrators={"right": right, "any": one_of(ANSWERS)},
)
