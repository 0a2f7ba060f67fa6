"""Careless, openai: a coroutine that blocks its event loop while it asks."""

from openai import AsyncOpenAI, OpenAI

client, patient = OpenAI(), AsyncOpenAI()


async def run(text):
    messages = [{"role": "user", "content": text}]
    first = await patient.chat.completions.create(model="a", messages=messages)
    messages += [first.choices[0].message, {"role": "user", "content": "sure?"}]
    second = client.chat.completions.create(model="b", messages=messages)
    return f"{first.choices[0].message.content} {second.choices[0].message.content}"
