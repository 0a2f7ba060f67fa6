"""Computer use without pictures, openai: the screen is text, the only tool types and clicks."""

import json

from openai import OpenAI

PARAMETERS = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
PRESS = {"type": "function", "function": {"name": "press", "parameters": PARAMETERS}}


def use(task):
    client, typed = OpenAI(), ""
    chat = [{"role": "system", "content": "Use the computer."}, {"role": "user", "content": task}]
    while "ENTER" not in typed:
        found = client.chat.completions.create(
            model="cua", messages=chat, tools=[PRESS], tool_choice="required"
        )
        chat.append(found.choices[0].message)
        for call in chat[-1].tool_calls:
            typed += json.loads(call.function.arguments)["key"]
            screen = {"role": "tool", "tool_call_id": call.id, "content": f"screen: [{typed}]"}
            chat.append(screen)
    return typed.removesuffix("ENTER")
