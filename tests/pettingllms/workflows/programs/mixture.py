"""Mixture of agents, openai: two layers of several models at once, and one that joins them."""

import asyncio

from openai import AsyncOpenAI


async def run(question):
    async with AsyncOpenAI() as client:

        async def ask(model, known):
            messages = [{"role": "user", "content": f"{question}\nKnown: {known}"}]
            found = await client.chat.completions.create(model=model, messages=messages)
            return found.choices[0].message.content

        known = []
        for _ in range(2):
            known = await asyncio.gather(*(ask(model, known) for model in ("llama", "qwen")))
        return await ask("joiner", known)
