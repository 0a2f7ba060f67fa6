"""Tool approval, Agents SDK: a call waits until it is approved; the run goes on from its state."""

import asyncio

from agents import Agent, Runner, function_tool


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


clerk = Agent(name="Clerk", instructions="You pay bills.", tools=[pay])


async def main():
    result = await Runner.run(clerk, input("Which bill? "))
    while result.interruptions:
        state = result.to_state()
        for call in result.interruptions:
            if "1000" in (call.raw_item.arguments or ""):
                state.reject(call)
            else:
                state.approve(call)
        result = await Runner.run(clerk, state)
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
