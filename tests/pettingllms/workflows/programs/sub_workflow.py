"""Sub-workflow, LangGraph: a graph of drafting and checking is a node of the graph around it."""

from langchain_openai import ChatOpenAI
from langgraph.graph import StateGraph
from typing_extensions import TypedDict

model = ChatOpenAI(model="gpt-4.1")


class State(TypedDict):
    text: str


def asking(system):
    def node(state):
        return {"text": model.invoke([("system", system), ("user", state["text"])]).content}

    return node


def chain(**nodes):
    graph = StateGraph(State)
    graph.add_sequence([*nodes.items()])
    graph.set_entry_point(next(iter(nodes)))
    return graph.compile()


inner = chain(draft=asking("You draft."), check=asking("You check."))
outer = chain(write=inner, translate=asking("You translate."))


def main(topic):
    return outer.invoke({"text": topic})["text"]
