"""Tree search, openai: thoughts are proposed and valued, both at once; the best goes deeper."""

import asyncio

from openai import AsyncOpenAI

client = AsyncOpenAI()


async def ask(system, text):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    found = await client.chat.completions.create(model="gpt-4.1", messages=messages)
    return found.choices[0].message.content


async def valued(thought):
    told = await ask("Value the thought from 0 to 9.", thought)
    return int(told) if told.isdigit() else 0


async def main(question):
    best = question
    for _ in range(2):
        asked = (ask("Propose the next thought.", best) for _ in range(2))
        thoughts = [f"{best} > {thought}" for thought in await asyncio.gather(*asked)]
        values = await asyncio.gather(*map(valued, thoughts))
        best = thoughts[values.index(max(values))]
    print(best)
