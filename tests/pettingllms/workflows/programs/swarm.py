"""Swarm, openai: every agent is a prompt with functions, and a function may return an agent."""

import json

from openai import OpenAI

client = OpenAI()
SALES = {"name": "Sales", "system": "You sell.", "next": ["Refunds"]}
REFUNDS = {"name": "Refunds", "system": "You refund.", "next": ["Sales"]}
AGENTS = {one["name"]: one for one in (SALES, REFUNDS)}


def tool(name):
    return {"type": "function", "function": {"name": f"transfer_to_{name}", "parameters": {}}}


def main():
    agent, messages = SALES, [{"role": "user", "content": input()}]
    while True:
        found = client.chat.completions.create(
            model="gpt-4o",
            messages=[{"role": "system", "content": agent["system"]}, *messages],
            tools=[tool(name) for name in agent["next"]],
            parallel_tool_calls=False,
        )
        message = found.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        call = message.tool_calls[0]
        assert json.loads(call.function.arguments) == {}
        agent = AGENTS[call.function.name.removeprefix("transfer_to_")]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": agent["name"]})
