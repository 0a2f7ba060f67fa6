"""Handoff, Agents SDK: a triage agent hands over to who speaks the language of the request."""

import asyncio

from agents import Agent, Runner, function_tool


@function_tool
def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"sunny in {city}"


spanish = Agent(name="Spanish agent", instructions="You only speak Spanish.", tools=[weather])
english = Agent(name="English agent", instructions="You only speak English.")
triage = Agent(
    name="Triage agent",
    instructions="Hand off to the agent of the language of the request.",
    handoffs=[spanish, english],
)


async def main():
    text = input("How can I help? ")
    result = await Runner.run(triage, text)
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
