"""LangGraph: a writer knows which words a sentence must have, an editor knows how short it must be.

Needs langgraph, langchain-openai, and a model of 93 MB. Train it from this folder:
pettingllms-train fetch-model smollm2 && pettingllms-train langgraph_writer_editor.toml --trust
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
MOST_WORDS = 12
SENTENCE = re.compile(r"[A-Z][a-z ,']*[a-z]\.")
THINGS = [
    "apple", "bird", "boat", "book", "bread", "bridge", "cat", "chair", "clock", "dog", "door",
    "fish", "garden", "hat", "horse", "house", "lamp", "letter", "moon", "mountain", "river",
    "road", "stone", "tree", "window",
]  # fmt: skip


class State(TypedDict):
    """What the nodes of the graph share."""

    words: list[str]
    draft: str
    text: str


def run(task, client):
    """Return the sentence that the editor has made of the writer's."""

    def asked(role, system, user):
        model = ChatOpenAI(
            model=role, base_url=client.base_url, api_key=client.api_key, max_retries=0, **HTTP
        )
        return model.invoke([("system", system), ("user", user)]).content

    def writer(state):
        words = ", ".join(state["words"])
        text = asked("writer", "Write one short sentence with the words.", words)
        client.reward(share(state["words"], text))
        return {"draft": text}

    def editor(state):
        wanted = f"Make it one sentence of at most {MOST_WORDS} words."
        text = asked("editor", wanted, state["draft"])
        client.reward(share(state["words"], text) * is_short_sentence(text))
        return {"text": text}

    graph = StateGraph(State)
    graph.add_node("writer", writer)
    graph.add_node("editor", editor)
    graph.add_edge(START, "writer")
    graph.add_edge("writer", "editor")
    graph.add_edge("editor", END)
    return graph.compile().invoke(State(words=task, draft="", text=""))["text"]


def share(words, text):
    """Return the share of the words that a text has."""
    found = re.findall("[a-z]+", text.lower())
    return sum(word in found for word in words) / len(words)


def is_short_sentence(text):
    """Return whether a text is one sentence of at most `MOST_WORDS` words."""
    return SENTENCE.fullmatch(text) is not None and 6 <= len(text.split()) <= MOST_WORDS


def draw(rng, split):
    """Return three words; no test has the same three as a task for training."""
    while True:
        words = rng.sample(THINGS, 3)
        if (sum(map(THINGS.index, words)) % 5 == 0) == (split == "test"):
            return words


LONG = (
    "There was once a very old {} that stood beside a big {} and behind a little {}.",
    "When I came home in the evening I saw the {}, and then the {} and also the {}.",
    "My mother told me that the {} was found by the {} not far away from the {}.",
)
SHORT = (
    "The {} is beside the {} and the {}.",
    "I saw the {}, the {} and the {}.",
    "A {} was found by the {} near the {}.",
)


def written(rng, words, patterns, keep):
    """Return a sentence of a pattern that has each of the words with probability `keep`."""
    chosen = [word if rng.random() < keep else rng.choice(THINGS) for word in words]
    return rng.choice(patterns).format(*chosen)


def demonstrated(keep):
    """Return a demonstrator that keeps each word with a probability."""

    def demonstrate(task, agent, messages, rng):
        said = messages[-1]["content"]
        if agent == "writer_0":
            return written(rng, task, LONG + SHORT, keep)
        words = [word for word in re.findall("[a-z]+", said) if word in THINGS][:3]
        return written(rng, (words + rng.sample(THINGS, 3))[:3], SHORT, keep)

    return demonstrate


workflow = Workflow(
    run=run,
    reward=lambda task, text: share(task, text) == 1 and is_short_sentence(text),
    roles=("writer", "editor"),
    tasks=draw,
    step_rewards=True,
    demonstrators={"right": demonstrated(1.0), "any": demonstrated(0.5)},
)
