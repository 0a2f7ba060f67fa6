"""Map-reduce, LangGraph: `Send` starts a node for every chapter, and one node joins their notes."""

import operator
from typing import Annotated

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

mini, large = ChatOpenAI(model="gpt-mini"), ChatOpenAI(model="gpt-large")


class State(TypedDict):
    chapters: list[str]
    notes: Annotated[list[str], operator.add]
    summary: str


async def note(chapter):
    return {"notes": [(await mini.ainvoke(f"Note: {chapter}")).content]}


async def join(state):
    return {"summary": (await large.ainvoke("Join: " + "; ".join(state["notes"]))).content}


builder = StateGraph(State)
builder.add_node("note", note)
builder.add_node("join", join)
builder.add_conditional_edges(START, lambda s: [Send("note", c) for c in s["chapters"]], ["note"])
builder.add_edge("note", "join")
builder.add_edge("join", END)


async def main(chapters):
    return (await builder.compile().ainvoke({"chapters": chapters}))["summary"]
