"""LangGraph: a supervisor who hands over to two agents with a tool each.

Needs langchain, langchain-openai and langgraph-supervisor.
"""

from arithmetic import NUMBERS, TASKS, is_right, numbers, one_of, solution
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph_supervisor import create_supervisor

from pettingllms.workflows import Workflow, call_text


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def run(task, client):
    """Let the supervisor hand over until it answers itself."""

    def model(role):
        return ChatOpenAI(model=role, base_url=client.base_url, api_key=client.api_key)

    adder = create_agent(model("adder"), tools=[add], name="adder")
    multiplier = create_agent(model("multiplier"), tools=[multiply], name="multiplier")
    prompt = "Hand sums to the adder and products to the multiplier, then say the result."
    team = create_supervisor([adder, multiplier], model=model("supervisor"), prompt=prompt)
    found = team.compile().invoke({"messages": [{"role": "user", "content": task}]})
    return found["messages"][-1].content


def right(task, agent, messages, rng):
    """Hand over, call the tool, and say what it returned."""
    worker, tool = ("adder", "add") if "+" in task else ("multiplier", "multiply")
    told = " ".join(message["content"] for message in messages if message["role"] != "system")
    if agent == "supervisor_0":
        return solution(task) if "transferred" in told else call_text(f"transfer_to_{worker}")
    a, b = numbers(task)
    is_called = f"<tool_response>\n{solution(task)}\n" in told
    return solution(task) if is_called else call_text(tool, a=a, b=b)


ANSWERS = {
    "supervisor_0": [call_text("transfer_to_adder"), call_text("transfer_to_multiplier"), *NUMBERS],
    "adder_0": [call_text("add", a=1, b=2), *NUMBERS],
    "multiplier_0": [call_text("multiply", a=2, b=2), *NUMBERS],
}

workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("supervisor", "adder", "multiplier"),
    tasks=TASKS,
    max_turns=2,
    demonstrators={"right": right, "any": one_of(ANSWERS)},
)
