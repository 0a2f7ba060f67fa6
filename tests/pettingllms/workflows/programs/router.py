"""Router, LangChain: a structured answer says which prompt comes next."""

from typing import Literal

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

model = ChatOpenAI(model="gpt-4o-mini", temperature=0)


class Route(BaseModel):
    """Where a question belongs."""

    topic: Literal["maths", "history"] = Field(description="The topic of the question.")


def expert(topic):
    prompt = ChatPromptTemplate([("system", f"You know all of {topic}."), ("human", "{question}")])
    return prompt | model | StrOutputParser()


route = ChatPromptTemplate([("system", "Route the question."), ("human", "{question}")])
router = route | model.with_structured_output(Route, method="json_schema")
chain = {"route": router, "question": lambda given: given["question"]} | RunnableLambda(
    lambda found: expert(found["route"].topic)
)


def ask(question):
    return chain.invoke({"question": question})
