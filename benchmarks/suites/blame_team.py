"""A LangGraph team for the suite `blame`: read numbers, add them one by one, write the sum."""

from __future__ import annotations

import random
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from pettingllms.workflows import Workflow

HTTP = {"http_client": DefaultHttpxClient(), "http_async_client": DefaultAsyncHttpxClient()}
"""Shared by all runs: one that is opened for each would read certificates every time."""


class Sums(TypedDict):
    """What the nodes of the graph share."""

    task: str
    numbers: str
    total: str
    answer: str


def asked(config: RunnableConfig, role: str, text: str) -> str:
    """What a role answers."""
    client = config["configurable"]["client"]
    model = ChatOpenAI(
        model=role, base_url=client.base_url, api_key=client.api_key, max_retries=0, **HTTP
    )
    return str(model.invoke(text).content)


def reader(state: Sums, config: RunnableConfig) -> dict[str, str]:
    """Ask for the numbers of the task."""
    first, *rest = asked(config, "reader", state["task"]).split()
    return {"total": first, "numbers": " ".join(rest)}


def adder(state: Sums, config: RunnableConfig) -> dict[str, str]:
    """Ask for the sum so far and the next number."""
    first, *rest = state["numbers"].split()
    total = asked(config, "adder", f"{state['total']} {first}")
    return {"total": total, "numbers": " ".join(rest)}


def writer(state: Sums, config: RunnableConfig) -> dict[str, str]:
    """Ask for the answer."""
    return {"answer": asked(config, "writer", state["total"])}


def after(state: Sums) -> str:
    """The next node."""
    return "adder" if state["numbers"] else "writer"


def team() -> Any:
    """The graph."""
    graph = StateGraph(Sums)
    for node in (reader, adder, writer):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "reader")
    graph.add_conditional_edges("reader", after)
    graph.add_conditional_edges("adder", after)
    graph.add_edge("writer", END)
    return graph.compile()


GRAPH = team()


def run(task: str, client: Any) -> str:
    """What the writer says the sum is."""
    first = Sums(task=task, numbers="", total="", answer="")
    return str(GRAPH.invoke(first, {"configurable": {"client": client}})["answer"])


def careful(task: str, agent: str, messages: Any, rng: random.Random) -> str:
    """What a member of the team should say."""
    text = str(messages[-1]["content"])
    if agent == "reader_0":
        return text.replace("+", " ")
    return str(sum(map(int, text.split())))


def careless(task: str, agent: str, messages: Any, rng: random.Random) -> str:
    """The same with the last number raised by one."""
    *others, last = careful(task, agent, messages, rng).split()
    return " ".join([*others, str(int(last) + 1)])


def draw(rng: random.Random, split: str) -> str:
    """A task, such as ``12+7+30``."""
    return "+".join(str(rng.randrange(1, 50)) for _ in range(3))


workflow = Workflow(
    run=run,
    reward=lambda task, answer: answer == str(sum(map(int, task.split("+")))),
    roles=("reader", "adder", "writer"),
    tasks=draw,
    demonstrators={"careful": careful, "careless": careless},
)
