"""LangGraph: a solver calculates in sentences, a critic may send the answer back.

Needs langgraph, langchain-openai, and a model of 93 MB. Train it from this folder:
pettingllms-train fetch-model smollm2 && pettingllms-train langgraph_solver_critic.toml
"""

import re
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from pettingllms.workflows import Workflow

# Shared by all runs: every run has an address of its own, and a client that is opened for it would
# read certificates, which takes a tenth of a second.
HTTP = {"http_client": DefaultHttpxClient(), "http_async_client": DefaultAsyncHttpxClient()}
NAMES = ("Ann", "Ben", "Eva", "Ida", "Leo", "Max", "Mia", "Tom")
THINGS = ("apples", "books", "cards", "coins", "eggs", "pens", "shells", "stones")
ANSWER = re.compile(r"\d+ [+-] \d+ = (\d{1,3}) [a-z]+\.")
MORE, LESS = ("buys", "finds", "gets", "wins"), ("breaks", "drops", "loses", "sells")


class State(TypedDict):
    """What the nodes of the graph share."""

    question: str
    answer: str
    verdict: str
    attempts: int


def run(task, client):
    """Return the answer that the critic accepts, or the second one."""

    def asked(role, system, user):
        model = ChatOpenAI(
            model=role, base_url=client.base_url, api_key=client.api_key, max_retries=0, **HTTP
        )
        return model.invoke([("system", system), ("user", user)]).content

    def solver(state):
        wrong = f" Wrong: {state['answer']}" if state["answer"] else ""
        answer = asked("solver", "Calculate.", state["question"] + wrong)
        fault = None if ANSWER.fullmatch(answer) else "not a calculation such as 9 - 2 = 7 pens."
        client.reward(float(is_right(task, answer)), parse_error=fault)
        return {"answer": answer, "attempts": state["attempts"] + 1}

    def critic(state):
        verdict = asked("critic", "Right or wrong?", f"{state['question']} {state['answer']}")
        client.reward(float(verdict == verdict_on(task, state["answer"])))
        return {"verdict": verdict}

    def after_solver(state):
        return "critic" if state["attempts"] == 1 else END

    def after_critic(state):
        return "solver" if state["verdict"].startswith("Wrong") else END

    graph = StateGraph(State)
    graph.add_node("solver", solver)
    graph.add_node("critic", critic)
    graph.add_edge(START, "solver")
    graph.add_conditional_edges("solver", after_solver)
    graph.add_conditional_edges("critic", after_critic)
    first = State(question=task["question"], answer="", verdict="", attempts=0)
    return graph.compile().invoke(first)["answer"]


def is_right(task, answer):
    """Return whether an answer ends with what there is after the change."""
    found = ANSWER.fullmatch(answer)
    return found is not None and int(found[1]) == task["start"] + task["change"]


def verdict_on(task, answer):
    """Return what the critic should say."""
    return "Right." if is_right(task, answer) else "Wrong."


def draw(rng, split):
    """Return a task; the numbers of no test are those of a task for training."""
    while True:
        start, number = rng.randrange(6, 16), rng.randrange(2, 6)
        if ((start + 2 * number) % 5 == 0) == (split == "test"):
            break
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    sign, verbs = rng.choice([(1, MORE), (-1, LESS)])
    question = f"{name} has {start} {things}. {name} {rng.choice(verbs)} {number}. How many now?"
    return {"question": question, "start": start, "change": sign * number, "things": things}


def worked(task, change):
    """Return the answer that calculates with a change."""
    start, sign = task["start"], "+" if change > 0 else "-"
    return f"{start} {sign} {abs(change)} = {start + change} {task['things']}."


def right(task, agent, messages, rng):
    """Return what a member of the team should say."""
    if agent == "solver_0":
        return worked(task, task["change"])
    return verdict_on(task, messages[-1]["content"].partition("? ")[2])


def any_of(task, agent, messages, rng):
    """Return an answer that adds or subtracts without reading, or any verdict."""
    if agent == "critic_0":
        return rng.choice(["Right.", "Wrong."])
    return worked(task, rng.choice([-1, 1]) * task["change"])


workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("solver", "critic"),
    tasks=draw,
    step_rewards=True,
    demonstrators={"right": right, "any": any_of},
)
