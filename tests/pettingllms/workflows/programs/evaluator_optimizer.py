"""Evaluator-optimizer, anthropic: what one writes another judges, by a call, until it accepts."""

from anthropic import Anthropic

client = Anthropic()
VERDICT = {
    "name": "verdict",
    "description": "Accept a line, or say what it lacks.",
    "input_schema": {"type": "object", "properties": {"lacks": {"type": "string"}}},
}


def ask(system, text, **more):
    messages = [{"role": "user", "content": text}]
    return client.messages.create(
        model="claude", max_tokens=99, system=system, messages=messages, **more
    )


def main(topic):
    wish = f"Write a line about {topic}."
    for _ in range(3):
        with client.messages.stream(
            model="claude", max_tokens=99, messages=[{"role": "user", "content": wish}]
        ) as stream:
            line = "".join(stream.text_stream)
        choice = {"type": "tool", "name": "verdict"}
        judged = ask("You judge lines.", line, tools=[VERDICT], tool_choice=choice)
        lacks = next(block.input for block in judged.content if block.type == "tool_use")
        if not lacks.get("lacks"):
            break
        wish = f"Write it again: {line} It lacks {lacks['lacks']}"
    print(line)
