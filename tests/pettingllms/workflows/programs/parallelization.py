"""Best of n, Agents SDK: three translations at once, of which another agent picks one."""

import asyncio
import datetime
import uuid

from agents import Agent, ItemHelpers, Runner, trace

translator = Agent(name="Translator", instructions="Translate the message to Spanish.")
picker = Agent(name="Picker", instructions="Pick the best translation of the given ones.")


async def main():
    message = input("Hi! Enter a message to translate. ")
    with trace("Parallel translation"):
        results = await asyncio.gather(*(Runner.run(translator, message) for _ in range(3)))
        outputs = [ItemHelpers.text_message_outputs(one.new_items) for one in results]
        stamp = f"{datetime.datetime.now():%Y-%m-%d} {uuid.uuid4()}"
        best = await Runner.run(picker, f"{stamp}\n{message}\n{outputs}")
    print(f"Best translation: {best.final_output}")
