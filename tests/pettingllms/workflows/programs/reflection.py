"""Reflection, LangChain: one model criticises its own drafts in one chat, until it has no more."""

from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="gpt-4.1")
SYSTEM = ("system", "You write, and judge what you write.")


def run(topic):
    chat = [SYSTEM, ("user", f"Write a line about {topic}.")]
    while True:
        draft = model.invoke(chat).content
        chat += [("assistant", draft), ("user", "What is wrong with it? Nothing: say OK.")]
        critique = model.invoke(chat).content
        if "OK" in critique:
            return draft
        chat += [("assistant", critique), ("user", "Again.")]
