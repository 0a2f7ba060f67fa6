"""Supervisor, LangGraph: who works next is decided by a model; two workers share another one."""

from typing import Annotated, Literal

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

boss_model = ChatOpenAI(model="gpt-4.1", temperature=0)
worker_model = ChatOpenAI(model="gpt-4.1-mini", max_retries=1)


class State(MessagesState):
    next: str


class Report(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def supervisor(state: State) -> dict[str, str]:
    told = SystemMessage("You lead a researcher and a coder. Name who is next, or say FINISH.")
    return {"next": str(boss_model.invoke([told, *state["messages"]]).content)}


def worker(told: str):
    async def work(state: State) -> Report:
        answer = await worker_model.ainvoke([SystemMessage(told), *state["messages"]])
        return {"messages": [HumanMessage(f"{told[8:-1]}: {answer.content}")]}

    return work


def following(state: State) -> Literal["researcher", "coder", "__end__"]:
    return state["next"] if state["next"] in ("researcher", "coder") else END


builder = StateGraph(State)
builder.add_node("supervisor", supervisor)
builder.add_node("researcher", worker("You are a researcher."))
builder.add_node("coder", worker("You are a coder."))
builder.add_edge(START, "supervisor")
builder.add_conditional_edges("supervisor", following)
builder.add_edge("researcher", "supervisor")
builder.add_edge("coder", "supervisor")
graph = builder.compile(checkpointer=InMemorySaver())


async def ask(question: str) -> str:
    # One thread for all: what it remembers outlives a call.
    config = {"configurable": {"thread_id": "1"}}
    found = await graph.ainvoke({"messages": [HumanMessage(question)]}, config)
    return " | ".join(str(message.content) for message in found["messages"])
