"""Plan and execute, openai, Responses: a plan in JSON, a worker for every step, then a new plan."""

import json

from openai import AsyncOpenAI

client = AsyncOpenAI()


async def main(goal):
    done = []
    while True:
        asked = {"instructions": "Plan in JSON.", "text": {"format": {"type": "json_object"}}}
        plan = await client.responses.create(model="p", input=f"{goal} {done}", **asked)
        steps = json.loads(plan.output_text).get("steps", [])
        if not steps:
            return ", ".join(done)
        for step in steps:
            found = await client.responses.create(model="w", instructions="Do it.", input=step)
            done.append(found.output_text)
