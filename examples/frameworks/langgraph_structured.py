"""LangGraph: a router and a solver that answer with structured output.

Needs langgraph and langchain-openai.
"""

from typing import Literal, TypedDict

from arithmetic import TASKS, is_right, one_of, solution
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from pettingllms.workflows import Workflow


class Route(BaseModel):
    """Where a question goes."""

    kind: Literal["sum", "product"]


class Answer(BaseModel):
    """A number."""

    value: int


class State(TypedDict):
    """What the nodes of the graph share."""

    question: str
    kind: str
    value: int


def run(task, client):
    """Route the question, and answer it."""

    def model(role, schema):
        chat = ChatOpenAI(model=role, base_url=client.base_url, api_key=client.api_key)
        return chat.with_structured_output(schema)

    def router(state):
        return {"kind": model("router", Route).invoke(state["question"]).kind}

    def solver(state):
        asked = f"The {state['kind']}: {state['question']}"
        return {"value": model("solver", Answer).invoke(asked).value}

    graph = StateGraph(State)
    graph.add_node("router", router)
    graph.add_node("solver", solver)
    graph.add_edge(START, "router")
    graph.add_edge("router", "solver")
    graph.add_edge("solver", END)
    found = graph.compile().invoke({"question": task})
    return found["kind"], found["value"]


def reward(task, outcome):
    """Return half for the right route and half for the right value."""
    kind, value = outcome
    return ((kind == "sum") == ("+" in task)) / 2 + is_right(task, value) / 2


def right(task, agent, messages, rng):
    """Answer in the form that is wanted."""
    if agent == "router_0":
        return Route(kind="sum" if "+" in task else "product").model_dump_json()
    return Answer(value=int(solution(task))).model_dump_json()


ANSWERS = {
    "router_0": ['{"kind":"sum"}', '{"kind":"product"}', "sum"],
    "solver_0": ['{"value":2}', '{"value":3}', '{"value":4}', "4"],
}

workflow = Workflow(
    run=run,
    reward=reward,
    roles=("router", "solver"),
    tasks=TASKS,
    misfit_reward=-0.1,
    demonstrators={"right": right, "any": one_of(ANSWERS)},
)
