"""LangGraph: a coder writes the operator of a comparison, a tester may send it back.

Needs langgraph and langchain-openai. Train it from this folder:
pettingllms-train langgraph_coder_tester.toml --trust
"""

import operator
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from pettingllms.workflows import Workflow

# Shared by all runs: every run has an address of its own, and a client that is opened for it would
# read certificates, which takes a tenth of a second.
HTTP = {"http_client": DefaultHttpxClient(), "http_async_client": DefaultAsyncHttpxClient()}
OPERATORS = {"<": operator.lt, ">": operator.gt}


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
        program = asked("coder", f"{state['example']} {state['program']}")
        return {"program": program, "attempts": state["attempts"] + 1}

    def tester(state):
        return {"verdict": asked("tester", state["example"].replace("?", state["program"]))}

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
    """Return whether an operator makes a comparison true: of ``347?500`` it is ``<``."""
    return program in OPERATORS and OPERATORS[program](*map(int, task.split("?")))


TASKS = [f"{number}?500" for number in range(100, 1000) if number != 500]


def answer(task, agent, messages, rng):
    """Return what a member of the team should say."""
    right = next(sign for sign in OPERATORS if is_right(task, sign))
    if agent == "coder_0":
        return right
    return "y" if right in messages[-1]["content"] else "n"


workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("coder", "tester"),
    tasks={"train": [task for task in TASKS if task not in TASKS[::7]], "test": TASKS[::7]},
    demonstrators={
        "right": answer,
        "any": lambda task, agent, messages, rng: rng.choice("<>" if "coder" in agent else "yn"),
    },
)
