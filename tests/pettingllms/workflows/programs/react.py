"""Tools in a loop, LangGraph: a model calls two functions at once, and reads what they return."""

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word of {len(word)} letters"


model = ChatOpenAI(model="gpt-4o").bind_tools([look_up])
builder = StateGraph(MessagesState)
builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
builder.add_node("tools", ToolNode([look_up]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = builder.compile()


def run(question):
    return graph.invoke({"messages": [("user", question)]})["messages"][-1].content
