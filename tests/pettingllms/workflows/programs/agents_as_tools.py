"""Agents as tools, Agents SDK, streamed: one agent calls others as it would call functions."""

from agents import Agent, Runner

spanish = Agent(name="Español", instructions="Translate to Spanish.")
french = Agent(name="French", instructions="Translate to French.")
lead = Agent(
    name="Lead",
    instructions="Use the tools to translate.",
    tools=[
        spanish.as_tool(tool_name="to_spanish", tool_description="Translate to Spanish."),
        french.as_tool(tool_name="to_french", tool_description="Translate to French."),
    ],
)


async def main(text):
    result = Runner.run_streamed(lead, text)
    async for _ in result.stream_events():
        pass
    print(result.final_output)
