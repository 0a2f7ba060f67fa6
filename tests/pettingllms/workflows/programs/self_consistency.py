"""Self-consistency, openai: five equal questions at once, and the answer of most of them."""

import asyncio
from collections import Counter

from openai import AsyncOpenAI

client = AsyncOpenAI()


async def solve(question):
    found = await client.chat.completions.create(
        model="gpt-4o-mini",
        temperature=1,
        messages=[
            {"role": "system", "content": "Answer with a number."},
            {"role": "user", "content": question},
        ],
    )
    return found.choices[0].message.content


async def main(question):
    answers = await asyncio.gather(*(solve(question) for _ in range(5)))
    return f"{answers} {Counter(answers).most_common(1)[0][0]}"
