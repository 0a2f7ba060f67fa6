"""LangGraph: a coder writes the operator of a program, a tester runs it and may send it back.

Needs langgraph and langchain-openai. Train it from this folder:
pettingllms-train langgraph_coder_tester.toml
"""

import itertools
import operator
import random
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from pettingllms.workflows import Workflow

# Shared by all runs: every run has an address of its own, and a client that is opened for it would
# read certificates, which takes a tenth of a second.
HTTP = {"http_client": DefaultHttpxClient(), "http_async_client": DefaultAsyncHttpxClient()}
OPERATORS = {"+": operator.add, "-": operator.sub}


class State(TypedDict):
    """What the nodes of the graph share."""

    example: str
    program: str
    verdict: str
    attempts: int


def run(task, client):
    """Return the program that the tester accepts, or the second one."""

    def asked(role, text):
        model = ChatOpenAI(
            model=role, base_url=client.base_url, api_key=client.api_key, max_retries=0, **HTTP
        )
        return model.invoke(text).content

    def coder(state):
        program = asked("coder", f"{state['example']}?{state['program']}")
        return {"program": program, "attempts": state["attempts"] + 1}

    def tester(state):
        return {"verdict": asked("tester", f"{state['example']}{state['program']}")}

    def after(state):
        return END if state["verdict"] == "y" or state["attempts"] == 2 else "coder"

    graph = StateGraph(State)
    graph.add_node("coder", coder)
    graph.add_node("tester", tester)
    graph.add_edge(START, "coder")
    graph.add_edge("coder", "tester")
    graph.add_conditional_edges("tester", after)
    first = State(example=task, program="", verdict="", attempts=0)
    return graph.compile().invoke(first)["program"]


def is_right(task, program):
    """Return whether a program turns the two numbers into the result: ``2 3=5`` and ``+``."""
    numbers, _, result = task.partition("=")
    first, second = map(int, numbers.split())
    return program in OPERATORS and OPERATORS[program](first, second) == int(result)


TASKS = [
    f"{a} {b}={OPERATORS[sign](a, b)}"
    for a, b, sign in itertools.product(range(10), range(1, 10), OPERATORS)
]

TEST = random.Random(0).sample(TASKS, 64)


def answer(task, agent, messages, rng):
    """Return what a member of the team should say."""
    if agent == "coder_0":
        return next(sign for sign in OPERATORS if is_right(task, sign))
    return "y" if is_right(task, messages[-1]["content"][-1]) else "n"


workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("coder", "tester"),
    tasks={"train": [task for task in TASKS if task not in TEST], "test": TEST},
    demonstrators={
        "right": answer,
        "any": lambda task, agent, messages, rng: rng.choice("+-" if "coder" in agent else "yn"),
    },
)
