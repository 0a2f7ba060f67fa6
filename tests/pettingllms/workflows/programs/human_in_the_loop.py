"""Human in the loop, LangGraph: a person, who follows a script here, is asked by an interrupt."""

from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

model = ChatOpenAI(model="gpt-4.1")


class State(TypedDict):
    text: str
    wish: str


def write(state):
    return {"text": model.invoke([("system", "You write."), ("user", state["wish"])]).content}


def review(state):
    told = interrupt(state["text"])
    return Command(goto=END) if told == "fine" else Command(update={"wish": told}, goto="write")


builder = StateGraph(State)
builder.add_node("write", write)
builder.add_node("review", review, destinations=("write", END))
builder.add_edge(START, "write")
builder.add_edge("write", "review")
graph = builder.compile(checkpointer=InMemorySaver())


def main(wish):
    thread = {"configurable": {"thread_id": "1"}}
    found = graph.invoke({"wish": wish}, thread)
    for told in ("shorter", "fine"):
        found = graph.invoke(Command(resume=told), thread)
    return found["text"]
