"""Retrieval, openai: a question becomes a search, and what it finds the context of the answer."""

from openai import OpenAI

client = OpenAI()
LIBRARY = {"tea": "Tea is a leaf.", "coffee": "Coffee is a bean."}


def run(question):
    def ask(system, text):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        return client.chat.completions.create(model="m", messages=messages).choices[0].message

    words = ask("Write search words.", question).content.split()
    found = "\n".join(LIBRARY[word] for word in words if word in LIBRARY)
    return ask("Answer from the sources.", f"{found}\n\n{question}").content
